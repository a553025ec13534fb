"""OpenAI's chat completion objects, and ours inside them (``starsd``)."""

from __future__ import annotations

import time

import msgspec
from msgspec import UNSET, UnsetType

from starsd.protocol.events import Usage
from starsd.protocol.frames import RequestStats


class CachedTokens(msgspec.Struct, frozen=True):
    cached_tokens: int


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What the star did for this answer; ``target`` served it."""

    rounds: int
    proposed: int
    accepted: int
    fallbacks: int
    target: str


class ChunkDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: ChunkDelta
    logprobs: None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One ``data:`` frame of a stream."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None
    choices: tuple[ChunkChoice, ...]
    usage: UsageBody | None = None
    starsd: Speculation | UnsetType = UNSET


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: str = "assistant"
    content: str
    refusal: None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: str


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer that is not streamed."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    system_fingerprint: str | None
    choices: tuple[Choice, ...]
    usage: UsageBody
    starsd: Speculation


class ModelBody(msgspec.Struct, frozen=True, kw_only=True):
    """``max_model_len``: context in tokens (vLLM's extension)."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "starsd"
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: tuple[ModelBody, ...]


class Heading(msgspec.Struct, kw_only=True):
    """What all parts of one answer share; ``fingerprint`` is known from Begin on."""

    id: str
    model: str
    created: int = msgspec.field(default_factory=lambda: int(time.time()))
    fingerprint: str | None = None

    def chunk(
        self,
        *choices: ChunkChoice,
        usage: UsageBody | None = None,
        starsd: Speculation | UnsetType = UNSET,
    ) -> Chunk:
        return Chunk(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            choices=choices,
            usage=usage,
            starsd=starsd,
        )

    def completion(self, text: str, reason: str, usage: Usage, starsd: Speculation) -> Completion:
        return Completion(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            choices=(Choice(message=AnswerMessage(content=text), finish_reason=reason),),
            usage=usage_body(usage),
            starsd=starsd,
        )


def usage_body(usage: Usage) -> UsageBody:
    return UsageBody(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=CachedTokens(usage.cached_tokens),
    )


def speculation(stats: RequestStats, target: str) -> Speculation:
    return Speculation(
        rounds=stats.rounds,
        proposed=stats.proposed,
        accepted=stats.accepted,
        fallbacks=stats.fallbacks,
        target=target,
    )
