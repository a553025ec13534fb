"""What the answers of all APIs have in common: OpenAI's envelope, and ours inside (``starsd``)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from services.gateway.answers import Tally
from starsd.protocol.events import Begin, Delta, Done, Usage
from starsd.protocol.frames import Origin


class CachedTokens(msgspec.Struct, frozen=True):
    cached_tokens: int


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens

    @classmethod
    def of(cls, usage: Usage) -> UsageBody:
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            prompt_tokens_details=CachedTokens(usage.cached_tokens),
        )


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What the star did for this answer; ``target`` served it."""

    rounds: int
    proposed: int
    accepted: int
    fallbacks: int
    target: str

    @classmethod
    def of(cls, tally: Tally) -> Speculation:
        stats = tally.stats
        return cls(
            rounds=stats.rounds,
            proposed=stats.proposed,
            accepted=stats.accepted,
            fallbacks=stats.fallbacks,
            target=", ".join(tally.targets),
        )

    @property
    def headers(self) -> dict[str, str]:
        facts = msgspec.structs.asdict(self)
        return {f"X-Starsd-{name.title()}": str(value) for name, value in facts.items()}


ORIGINS = {
    Origin.ACCEPTED: "accepted",
    Origin.RECOVERED: "recovered",
    Origin.BONUS: "bonus",
    Origin.PLAIN: "plain",
}


class Piece(msgspec.Struct, frozen=True):
    """Text that one token released. ``origin`` None: it was held back until the end."""

    text: str
    origin: str | None


class Pieces(msgspec.Struct, frozen=True):
    """The text of a chunk, by its tokens."""

    pieces: list[Piece]

    @classmethod
    def of(cls, event: Delta | Done) -> Pieces:
        if isinstance(event, Done):
            return cls([Piece(event.text, None)])
        pieces, start = [], 0
        for length, origin in zip(event.lengths, event.origins, strict=False):
            if length:
                pieces.append(Piece(event.text[start : start + length], ORIGINS[origin]))
            start += length
        return cls(pieces)


Extension = Speculation | Pieces | UnsetType
"""Of a chunk: the last one has the statistics."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One ``data:`` frame of a stream."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str | UnsetType = UNSET
    choices: Sequence[Any]
    usage: UsageBody | None = None
    starsd: Extension = UNSET


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer that is not streamed."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str | UnsetType = UNSET
    choices: Sequence[Any]
    usage: UsageBody
    starsd: Speculation


class ModelBody(msgspec.Struct, frozen=True, kw_only=True):
    """``max_model_len``: context in tokens; ``root``: what an alias stands for (vLLM's
    extensions)."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "starsd"
    root: str
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: tuple[ModelBody, ...]


class Heading(msgspec.Struct, kw_only=True):
    """What all parts of one answer share; ``model`` and ``fingerprint`` are known from Begin on.

    ``whole`` and ``chunk`` are the names of its objects.
    """

    id: str
    whole: str
    chunk: str
    service_tier: str | UnsetType = UNSET
    model: str = ""
    created: int = msgspec.field(default_factory=lambda: int(time.time()))
    fingerprint: str | None = None

    def note(self, begin: Begin) -> None:
        self.model, self.fingerprint = begin.model, begin.fingerprint

    def chunk_of(
        self,
        choices: Sequence[Any],
        usage: UsageBody | None = None,
        starsd: Extension = UNSET,
    ) -> Chunk:
        return Chunk(
            id=self.id,
            object=self.chunk,
            created=self.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            service_tier=self.service_tier,
            choices=choices,
            usage=usage,
            starsd=starsd,
        )

    def whole_of(self, choices: Sequence[Any], tally: Tally) -> Whole:
        return Whole(
            id=self.id,
            object=self.whole,
            created=self.created,
            model=self.model,
            system_fingerprint=self.fingerprint,
            service_tier=self.service_tier,
            choices=choices,
            usage=UsageBody.of(tally.usage),
            starsd=Speculation.of(tally),
        )


def json_response(body: msgspec.Struct, headers: Mapping[str, str] | None = None) -> Response:
    content = msgspec.json.encode(body)
    return Response(content, headers=dict(headers or {}), media_type="application/json")
