"""Faults our own validators find, as pydantic errors that ``invalid`` can explain."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

MAX_VALUE_CHARS = 200


def invalid_value(right: str, value: Any = None, *, field: str = "") -> PydanticCustomError:
    """``right`` says what would be right; ``field`` names a field of the object validated."""
    return _fault("invalid_value", right, value, field)


def unsupported(right: str, value: Any, *, field: str) -> PydanticCustomError:
    """A field, or a value of it, that is known and not served."""
    return _fault("unsupported_parameter", right, value, field)


def shown(value: Any) -> str:
    """A client's value, for a message: ASCII (lone surrogates included) and not for ever."""
    try:
        return cut(ascii(value))
    except RecursionError:  # JSON nested just less deeply than the parser minds
        return "..."


def cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "..."


def _fault(kind: Any, right: str, value: Any, field: str) -> PydanticCustomError:
    context: dict[str, Any] = {"text": right, "field": field}
    if value is not None:
        context["value"] = shown(value)
    return PydanticCustomError(kind, "{text}", context)
