"""The request models of the OpenAI API for text."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from services.gateway.body import encodable
from services.gateway.faults import invalid_value, unsupported
from services.gateway.messages import Message
from services.gateway.options import (
    MAX_TOKEN_ID,
    MAX_TOKENS,
    UNUSED,
    Metadata,
    Options,
    ServiceTier,
)
from services.gateway.tools import Tooled
from services.gateway.unserved import CHAT, COMPLETION
from starsd.protocol.events import MAX_LOGPROBS
from starsd.protocol.grammar import GrammarKind

MAX_MESSAGES = 4096
MAX_PROMPTS = 128
DEFAULT_MAX_TOKENS = 16
"""Of completions; OpenAI's."""


class ChatRequest(Options, Tooled):
    """OpenAI's chat completion request."""

    unserved = CHAT

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    max_completion_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="The newer name of max_tokens."
    )
    logprobs: bool = Field(False, description="Log probability of every token.")
    top_logprobs: int = Field(
        0, ge=0, le=MAX_LOGPROBS, description="And of the likeliest in its place; with logprobs."
    )
    metadata: Metadata | None = Field(None, description=UNUSED)
    service_tier: ServiceTier | None = Field(
        None, description='There is one tier; the answer says "default".'
    )
    safety_identifier: str | None = Field(None, description=UNUSED)
    prompt_cache_key: str | None = Field(None, description=UNUSED)

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.max_tokens not in (None, self.token_limit):
            message = f"differs from max_completion_tokens={self.token_limit}; send one of them"
            raise invalid_value(message, self.max_tokens, field="max_tokens")
        if self.top_logprobs and not self.logprobs:
            right = "only allowed with logprobs: true"
            raise invalid_value(right, self.top_logprobs, field="top_logprobs")
        if self.tool_use is not None:
            self._check_tools()
        return self

    def _check_tools(self) -> None:
        if self.ignore_eos:
            raise invalid_value("an answer with tools ends", self.ignore_eos, field="ignore_eos")
        if self.grammar is not None and self.grammar.kind is not GrammarKind.JSON:
            right = "beside tools an answer may have a schema only"
            raise invalid_value(right, field=self.grammar.param)


def _one_prompt(prompt: Any) -> Any:
    if isinstance(prompt, str):
        return encodable(prompt)
    if not isinstance(prompt, list) or not prompt:
        raise invalid_value("want text, or a list of token ids", prompt)
    for place, token in enumerate(prompt):
        if type(token) is not int or not 0 <= token <= MAX_TOKEN_ID:
            right = f"want a token id, from 0 to {MAX_TOKEN_ID}"
            raise invalid_value(right, token, field=f"[{place}]")
    return prompt


Prompt = Annotated[str | list[int], PlainValidator(_one_prompt)]


def _prompt_list(prompt: Any) -> Any:
    """One text, or one list of ids, is a list of one."""
    one = isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt)
    )
    return [prompt] if one else prompt


_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        _TOKENS,
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_PROMPTS},
        {"type": "array", "items": _TOKENS, "minItems": 1, "maxItems": MAX_PROMPTS},
    ]
}


class CompletionRequest(Options):
    """OpenAI's completion request."""

    unserved = COMPLETION

    prompt: Annotated[
        list[Prompt], BeforeValidator(_prompt_list), WithJsonSchema(_PROMPT_SCHEMA)
    ] = Field(
        min_length=1,
        max_length=MAX_PROMPTS,
        fail_fast=True,
        description="Text or token ids to continue, or a list of such.",
    )
    max_tokens: int | None = Field(
        DEFAULT_MAX_TOKENS, ge=1, le=MAX_TOKENS, description="Most tokens to generate."
    )
    best_of: int | None = Field(None, ge=1, description="Served where it equals n.")
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Log probability of every token and of so many likeliest ones.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.best_of not in (None, self.n):
            right = f"answers are not ranked; leave it out or send n, which is {self.n}"
            raise unsupported(right, self.best_of, field="best_of")
        return self
