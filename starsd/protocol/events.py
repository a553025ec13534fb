"""Gateway <-> target over HTTP: one request, then a stream of typed events, one JSON a line.

``Begin``, then ``Delta`` events of all choices as they come, and one ``Done`` for each choice. An
``Error`` ends all that have not ended yet. Nothing follows the last terminal event.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from starsd.errors import ErrorBody
from starsd.protocol.frames import FinishReason, Origin, RequestStats
from starsd.protocol.grammar import Grammar
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tools import CallDelta, ToolUse

GENERATE_PATH = "/internal/v1/generate"
INFO_PATH = "/internal/v1/info"
MEDIA_TYPE = "application/x-ndjson"
MAX_LOGPROBS = 20
"""Likeliest tokens whose log probabilities may be asked for (OpenAI's limit)."""

Digest = Annotated[str, msgspec.Meta(max_length=64)]


class Generate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway has validated, drawn the seed, and chosen this target.

    ``messages`` are OpenAI chat messages with text content only; without any, ``prompt`` is the
    text or the token ids to continue. ``model`` is any name the target goes by. ``n`` answers are
    wanted, whose seeds are ``choice_seed(sampling.seed, choice)``. ``max_tokens`` None means up to
    the model's context. ``sampling.prompt_len`` is set by the target. ``logprobs`` and
    ``draft_depth`` are as in ``Submit``; with ``ignore_eos`` only the limit and stops end an
    answer. Requests of one ``salt`` (a tenant) may share what was computed of a common beginning;
    those of one ``session`` the gateway sends to one target.
    """

    id: str
    model: str
    messages: list[dict[str, Any]] = []
    prompt: str | list[int] | None = None
    sampling: SamplingParams
    n: Annotated[int, msgspec.Meta(ge=1)] = 1
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    draft_depth: Annotated[int, msgspec.Meta(ge=0)] | None = None
    grammar: Grammar | None = None
    tools: ToolUse | None = None
    salt: Digest = ""
    session: Digest = ""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens; completion counts through the token that completes a stop, EOS included."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """First event, once for all choices, of which ``choice`` is the first. ``model`` is the served
    name, whatever alias was asked for. ``fingerprint``: revision, dtype, quantisation, noise
    version."""

    choice: int = 0
    model: str = ""
    prompt_ids: list[int]
    seed: int
    fingerprint: str


class Likelihood(msgspec.Struct, frozen=True, array_like=True):
    """A token by the bytes it stands for, and its log probability."""

    token: bytes
    logprob: float


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """A token that was sampled, and the likeliest ones in its place, best first."""

    chosen: Likelihood
    top: list[Likelihood]


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="delta"):
    """Tokens of one step with their origin, and the text they release.

    Tokens whose text is held back (stop string, incomplete UTF-8) are listed when sampled; their
    text comes with a later event. ``lengths`` are the characters of ``text`` that each token
    released. ``logprobs`` has an entry for each of ``ids``, where asked for. ``calls`` are what of
    the text is tool calls.
    """

    choice: int = 0
    ids: list[int]
    origins: list[Origin]
    text: str
    lengths: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    calls: list[CallDelta] = []


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """Terminal for its choice: ``text`` and ``calls`` are what was still held back."""

    choice: int = 0
    text: str = ""
    calls: list[CallDelta] = []
    reason: FinishReason
    usage: Usage
    stats: RequestStats


class Error(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """Terminal for all choices: the request failed after the stream had begun."""

    error: ErrorBody


Event = Begin | Delta | Done | Error

__all__ = [
    "GENERATE_PATH",
    "INFO_PATH",
    "MAX_LOGPROBS",
    "MEDIA_TYPE",
    "Begin",
    "Delta",
    "Done",
    "Error",
    "Event",
    "Generate",
    "Likelihood",
    "TokenLogprobs",
    "Usage",
]
