"""What pydantic found wrong with a request, as one OpenAI error: field, value, what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.gateway.faults import shown
from starsd.errors import ErrorBody, RequestError, UnsupportedFieldError

NOT_AN_OBJECT = ("model_type", "model_attributes_type")


def explain(errors: Sequence[Any]) -> ErrorBody:
    """The first fault of a FastAPI ``RequestValidationError``."""
    return _explain(errors[0])


def _explain(fault: Mapping[str, Any]) -> ErrorBody:
    location = fault["loc"][1:]
    if fault["type"] == "json_invalid":
        where = location[0] if location else 0
        return RequestError(f"body: not JSON: {_json_fault(fault)} at character {where}").body()
    context = fault.get("ctx", {})
    param = _path(location) + _suffix(location, context)
    if fault["type"] == "extra_forbidden":
        name = shown(param)[1:-1]
        text = f"{name}: unknown field; see /docs for the fields served"
        return UnsupportedFieldError(text, param=name).body()
    message = _message(param, fault, context)
    if fault["type"] == "unsupported_parameter":
        return UnsupportedFieldError(message, param=param).body()
    return RequestError(message, param=param or None).body()


def _json_fault(fault: Mapping[str, Any]) -> str:
    return str(fault.get("ctx", {}).get("error", fault["msg"]))


def _path(location: Sequence[str | int]) -> str:
    """``("messages", 0, "content")`` to ``messages[0].content``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _suffix(location: Sequence[str | int], context: Mapping[str, Any]) -> str:
    """A validator of a whole object names the field it means in its context."""
    field = str(context.get("field", ""))
    return f".{field}" if field and location and not field.startswith("[") else field


def _message(param: str, fault: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    right = "should be a JSON object" if fault["type"] in NOT_AN_OBJECT else str(fault["msg"])
    if not param:
        return f"body: {right}, with Content-Type: application/json"
    if fault["type"] == "missing":
        return f"{param}: required"
    value = context.get("value") if "field" in context else shown(fault["input"])
    return f"{param}: {right}" if value is None else f"{param}={value}: {right}"
