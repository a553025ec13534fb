"""The base of all request models: strict types, unknown fields refused, ``null`` means absent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from services.gateway.faults import invalid_value
from services.gateway.unserved import Neutral, drop_neutral

MAX_FIELDS = 256
"""Of one object: every one is an error to describe if unknown, while all other requests wait."""


def encodable(text: str) -> str:
    """JSON can escape half a surrogate pair; no tokenizer and no UTF-8 can take it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid_value("not Unicode text: it has a lone surrogate", text) from error
    return text


Str = Annotated[str, AfterValidator(encodable)]


class Body(BaseModel):
    """A JSON object of a request. ``unserved`` fields are refused unless they ask for nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    unserved: ClassVar[Neutral] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_absent(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        if len(body) > MAX_FIELDS:
            raise invalid_value(f"an object of {len(body)} fields; the limit is {MAX_FIELDS}")
        body = drop_neutral(body, cls.unserved)
        return {k: v for k, v in body.items() if v is not None or k not in cls.model_fields}
