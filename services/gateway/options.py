"""What all requests for text have in common: limits, sampling, streaming.

Fields of OpenAI that are not listed here or in a request of its own are refused unless null or
neutral (``unserved``).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from services.gateway.body import Body, Str, encodable
from services.gateway.faults import invalid_value
from services.gateway.shape import Shape
from services.gateway.unserved import STREAM_OPTIONS
from starsd.protocol.messages import MAX_DEPTH
from starsd.protocol.sampling import MAX_BIAS

MAX_CHOICES = 128
MAX_METADATA = 16
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_TOKENS = 2**31 - 1
MAX_TOKEN_ID = 2**32 - 1
UNUSED = "Accepted and unused."


def _stop_list(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS), AfterValidator(encodable)]
Stops = Annotated[list[Stop], Field(max_length=MAX_STOPS), BeforeValidator(_stop_list)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]


def _ids_as_keys(bias: dict[str, float]) -> dict[str, float]:
    for token in bias:
        if not re.fullmatch("0|[1-9][0-9]{0,9}", token):
            raise invalid_value("its keys are token ids, like '42'", token)
    return bias


Bias = Annotated[float, Field(ge=-100, le=100)]
LogitBias = Annotated[dict[str, Bias], Field(max_length=MAX_BIAS), AfterValidator(_ids_as_keys)]


def _depth(speculation: Any) -> Any:
    """``draft_depth`` of ``Generate``."""
    if isinstance(speculation, str):
        if speculation not in ("auto", "off"):
            right = 'want "auto", "off", or how deep a proposal may be'
            raise invalid_value(right, speculation)
        return None if speculation == "auto" else 0
    return speculation


Speculation = Annotated[
    int | None,
    BeforeValidator(_depth),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["auto", "off"]},
                {"type": "integer", "minimum": 0, "maximum": MAX_DEPTH},
            ]
        }
    ),
]


class StreamOptions(Body):
    unserved = STREAM_OPTIONS

    include_usage: bool = Field(False, description="End the stream with a chunk of token counts.")
    continuous_usage_stats: bool = Field(
        False, description="Token counts so far in every chunk; with include_usage (vLLM)."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.continuous_usage_stats and not self.include_usage:
            right = "only allowed with include_usage: true"
            raise invalid_value(right, field="continuous_usage_stats")
        return self


class StarOptions(Body):
    """What only a star has."""

    speculation: Speculation = Field(
        None,
        le=MAX_DEPTH,
        ge=0,
        description='"off" decodes plainly, a number is how deep a proposal may be (never deeper '
        'than the target allows), "auto" leaves it to the target. The text is the same.',
    )
    origins: bool = Field(
        False, description="In a stream, every chunk says how the star came by its text."
    )


class Options(Shape):
    """Of chat completions and of completions."""

    model: Str = Field("", description="A name that GET /v1/models lists.")
    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Most tokens to generate; default: the context."
    )
    temperature: float = Field(1.0, ge=0, le=2, description="0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus of this probability mass.")
    top_k: int = Field(0, ge=-1, le=2**31, description="Most likely tokens; 0 or -1: all.")
    min_p: float = Field(0.0, ge=0, le=1, description="Least share of the top probability.")
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Same body and seed, same text; default: random."
    )
    frequency_penalty: float = Field(
        0.0, ge=-2, le=2, description="Taken off a token's logit for each time it was generated."
    )
    presence_penalty: float = Field(
        0.0, ge=-2, le=2, description="Taken off a token's logit once it was generated."
    )
    repetition_penalty: float = Field(
        1.0, gt=0, le=10, description="Divides the logits of tokens of prompt and answer (CTRL)."
    )
    logit_bias: LogitBias = Field({}, description="Added to logits, by token id.")
    stop: Stops = Field([], description="Up to 16 strings that end the answer; never part of it.")
    stop_token_ids: list[TokenId] = Field(
        [], max_length=MAX_STOPS, description="Tokens that end the answer; never part of it."
    )
    ignore_eos: bool = Field(False, description="Go on after the model's end tokens.")
    n: int = Field(1, ge=1, le=MAX_CHOICES, description="Answers to generate.")
    stream: bool = Field(False, description="Server-sent events instead of one answer.")
    stream_options: StreamOptions | None = Field(None, description="Only with stream.")
    starsd: StarOptions = Field(StarOptions(), description="What only a star has.")
    user: str | None = Field(None, description=UNUSED)

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def usage_in_every_chunk(self) -> bool:
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    @model_validator(mode="after")
    def _check_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise invalid_value("only allowed with stream: true", field="stream_options")
        return self

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.ignore_eos and self.grammar is not None:
            right = f"an answer ends where {self.grammar.param} says"
            raise invalid_value(right, self.ignore_eos, field="ignore_eos")
        return self


ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
Metadata = Annotated[
    dict[
        Annotated[str, Field(max_length=64)],
        Annotated[str, Field(max_length=512)],
    ],
    Field(max_length=MAX_METADATA),
]
