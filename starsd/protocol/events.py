"""Gateway <-> target over HTTP: one request, then a stream of typed events, one JSON a line.

Exactly one terminal event (``Done`` or ``Error``) per choice ends the stream.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from starsd.errors import ErrorBody
from starsd.protocol.frames import FinishReason, Origin, RequestStats
from starsd.protocol.sampling import SamplingParams

GENERATE_PATH = "/internal/v1/generate"
INFO_PATH = "/internal/v1/info"
MEDIA_TYPE = "application/x-ndjson"


class Generate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway has validated, drawn the seed, and chosen this target.

    ``messages`` are OpenAI chat messages with text content only. ``max_tokens`` None means up to
    the model's context. ``sampling.prompt_len`` is set by the target.
    """

    id: str
    model: str
    messages: list[dict[str, Any]]
    sampling: SamplingParams
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens; completion counts through the token that completes a stop, EOS included."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """First event. ``fingerprint``: revision, dtype, quantisation, noise version."""

    choice: int = 0
    prompt_ids: list[int]
    seed: int
    fingerprint: str


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="delta"):
    """Tokens of one step with their origin, and the text they release.

    Tokens whose text is held back (stop string, incomplete UTF-8) are listed when sampled; their
    text comes with a later event.
    """

    choice: int = 0
    ids: list[int]
    origins: list[Origin]
    text: str


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """Terminal: ``text`` is what was still held back."""

    choice: int = 0
    text: str = ""
    reason: FinishReason
    usage: Usage
    stats: RequestStats


class Error(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """Terminal: the request failed after the stream had begun."""

    choice: int = 0
    error: ErrorBody


Event = Begin | Delta | Done | Error

__all__ = [
    "GENERATE_PATH",
    "INFO_PATH",
    "MEDIA_TYPE",
    "Begin",
    "Delta",
    "Done",
    "Error",
    "Event",
    "Generate",
    "Usage",
]
