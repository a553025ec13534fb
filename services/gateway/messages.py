"""The conversation of a chat completion request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from services.gateway.body import Body, Str
from services.gateway.faults import invalid_value
from services.gateway.unserved import MESSAGE

MAX_TOOL_CALLS = 128


def _joined_text(content: Any) -> Any:
    """Text parts joined; a string as it is; anything else is for pydantic to refuse."""
    if not isinstance(content, list):
        return content
    return "".join(_part_text(part, index) for index, part in enumerate(content))


def _part_text(part: Any, index: int) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        message = "this model reads text only; send parts like {'type': 'text', 'text': '...'}"
        raise invalid_value(message, part if kind is None else kind, field=f"[{index}].type")
    text = part.get("text")
    given = {name for name, value in part.items() if value is not None}
    if not isinstance(text, str) or given != {"type", "text"}:
        raise invalid_value(
            "a text part has just 'type' and a string 'text'", part, field=f"[{index}]"
        )
    return text


_TEXT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                "required": ["type", "text"],
                "additionalProperties": False,
            },
        },
    ]
}
Text = Annotated[Str, BeforeValidator(_joined_text), WithJsonSchema(_TEXT_SCHEMA)]


def _echoed(what: str) -> Any:
    """A field that clients add to an answer that they send back: another field says the same."""
    return Field(None, exclude=True, description=f"{what}; unused.")


class FunctionCall(Body):
    name: Str
    arguments: Str = Field(description="JSON text, as the model wrote it.")
    parsed_arguments: Any = _echoed("What the openai package made of arguments")


class ToolCall(Body):
    index: int | None = _echoed("Its place in the stream it came from")
    id: Str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Body):
    """One turn of the conversation."""

    unserved = MESSAGE

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="developer is read as system."
    )
    content: Text | None = Field(
        None, description="Text, or text parts, which are joined. Only assistant may lack it."
    )
    name: Str | None = Field(None, description="Given to the chat template.")
    tool_calls: list[ToolCall] | None = Field(
        None,
        max_length=MAX_TOOL_CALLS,
        fail_fast=True,
        description="Of an earlier assistant turn.",
    )
    tool_call_id: Str | None = Field(None, description="Of a tool turn: the call it answers.")
    reasoning_content: Str | None = Field(
        None, description="Of an earlier assistant turn. Given to the chat template."
    )
    parsed: Any = _echoed("What the openai package made of content")
    provider_specific_fields: Any = _echoed("What LiteLLM kept of an answer besides")

    @model_validator(mode="after")
    def _check_role(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise invalid_value(f"a {self.role} message needs text", field="content")
        for field in ("tool_calls", "reasoning_content"):
            if getattr(self, field) is not None and self.role != "assistant":
                raise invalid_value("only an assistant message has this", field=field)
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise invalid_value("needed in a tool message, and only there", field="tool_call_id")
        return self
