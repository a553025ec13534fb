"""The request models of the OpenAI API: strict types, named limits, unknown fields refused.

``null`` means absent for every optional field.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from services.gateway.faults import invalid_value, unsupported
from services.gateway.unserved import (
    MESSAGE,
    REQUEST,
    STREAM_OPTIONS,
    Neutral,
    drop_neutral,
)

MAX_FIELDS = 256
"""Of one object: every one is an error to describe if unknown, while all other requests wait."""
MAX_MESSAGES = 4096
MAX_TOOL_CALLS = 128
MAX_METADATA = 16
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_TOKENS = 2**31 - 1


def _encodable(text: str) -> str:
    """JSON can escape half a surrogate pair; no tokenizer and no UTF-8 can take it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid_value("not Unicode text: it has a lone surrogate", text) from error
    return text


Str = Annotated[str, AfterValidator(_encodable)]


class _Body(BaseModel):
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
    if not isinstance(text, str) or set(part) != {"type", "text"}:
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


def _stop_list(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS), AfterValidator(_encodable)]
Stops = Annotated[list[Stop], Field(max_length=MAX_STOPS), BeforeValidator(_stop_list)]


class FunctionCall(_Body):
    name: Str
    arguments: Str = Field(description="JSON text, as the model wrote it.")


class ToolCall(_Body):
    id: Str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(_Body):
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

    @model_validator(mode="after")
    def _check_role(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise invalid_value(f"a {self.role} message needs text", field="content")
        if self.tool_calls is not None and self.role != "assistant":
            raise invalid_value("only an assistant message has tool calls", field="tool_calls")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise invalid_value("needed in a tool message, and only there", field="tool_call_id")
        return self


class StreamOptions(_Body):
    unserved = STREAM_OPTIONS

    include_usage: bool = Field(False, description="End the stream with a chunk of token counts.")


class ChatRequest(_Body):
    """OpenAI's chat completion request.

    Fields of OpenAI that are not listed here are refused unless null or neutral.
    """

    unserved = REQUEST

    model: Str = Field("", description="A name that GET /v1/models lists.")
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Most tokens to generate; default: the context."
    )
    max_completion_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="The newer name of max_tokens."
    )
    temperature: float = Field(1.0, ge=0, le=2, description="0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus of this probability mass.")
    top_k: int = Field(0, ge=-1, le=2**31, description="Most likely tokens; 0 or -1: all.")
    min_p: float = Field(0.0, ge=0, le=1, description="Least share of the top probability.")
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Same body and seed, same text; default: random."
    )
    stop: Stops = Field([], description="Up to 16 strings that end the answer; never part of it.")
    stream: bool = Field(False, description="Server-sent events instead of one answer.")
    stream_options: StreamOptions | None = Field(None, description="Only with stream.")
    n: int = Field(1, ge=1, description="Answers to generate; only 1 is served.")
    user: str | None = Field(None, description="Accepted and unused.")
    metadata: dict[str, str] | None = Field(
        None, max_length=MAX_METADATA, description="Accepted and unused."
    )

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @model_validator(mode="after")
    def _check_together(self) -> ChatRequest:
        if self.n != 1:
            raise unsupported("only 1 is served", self.n, field="n")
        if self.stream_options is not None and not self.stream:
            raise invalid_value("only allowed with stream: true", field="stream_options")
        if self.max_tokens not in (None, self.token_limit):
            message = f"differs from max_completion_tokens={self.token_limit}; send one of them"
            raise invalid_value(message, self.max_tokens, field="max_tokens")
        return self
