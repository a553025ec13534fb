"""What a service's front process and its step loop say to each other over a socketpair.

Length-prefixed msgpack frames (``starsd.process.channel``). The front owns text (templates, stop
strings, detokenising); the loop owns tokens.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from starsd.errors import ErrorBody
from starsd.protocol.pods import HubPod, Offer
from starsd.protocol.sampling import SamplingParams


class Origin(StrEnum):
    """How the target came by a token (vLLM's words)."""

    ACCEPTED = "a"  # equal to the draft's proposal
    RECOVERED = "r"  # the target's own sample where the proposal was wrong
    BONUS = "b"  # the target's own sample after a wholly accepted proposal
    PLAIN = "p"  # no proposal took part


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class RequestStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the star did for one request. A fallback is a decode step that wanted a proposal in
    vain; ``cached_tokens`` of the prompt were taken over from another request; ``repeated`` of the
    accepted tokens were proposed by the text's own n-grams."""

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    fallbacks: int = 0
    cached_tokens: int = 0
    repeated: int = 0


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """Front -> loop: one choice of a request. ``id`` is ours, never the client's. ``eos`` ids end
    the answer.

    ``logprobs`` asks for each token's log probability and for those of so many likeliest ones;
    None for none. ``draft_depth`` is the deepest proposal wanted: 0 none, None as the target sees
    fit. Neither changes a token. ``grammar`` is what all of the answer matches, as
    ``starsd.grammar.definition`` writes it. ``salt`` is of ``events.Generate``.
    """

    id: str
    prompt: list[int]
    sampling: SamplingParams
    max_tokens: int
    eos: tuple[int, ...]
    logprobs: int | None = None
    draft_depth: int | None = None
    grammar: str | None = None
    salt: str = ""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Front -> loop: the client left, or a stop string matched. Answered by Finished CANCELLED."""

    id: str


class Hubs(msgspec.Struct, frozen=True, kw_only=True, tag="hubs"):
    """Front -> loop: the registry's hubs, after every heartbeat."""

    hubs: list[HubPod]


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag="drain"):
    """Front -> loop of a hub: take no new sequences; those at hand are served on until Stop."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Front -> loop: close the session and exit."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """Loop -> front: the model is loaded and the engine is ready.

    ``offer`` is the hub's; ``facts_line`` says on one line what was started, for the log.
    """

    max_length: int
    capacity: int
    fingerprint: str
    facts_line: str
    offer: Offer | None = None


class Admitted(msgspec.Struct, frozen=True, kw_only=True, tag="admitted"):
    """Loop -> front, once: the request has got a slot."""

    id: str


class Logprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of the model's own probabilities (before penalties, bias, mask and
    temperature) of one token and of the likeliest ones in its place, best first."""

    chosen: float
    ids: list[int]
    values: list[float]


class Emitted(msgspec.Struct, frozen=True, kw_only=True, tag="emitted"):
    """Loop -> front: tokens of one step; an end-of-sequence token is among them (the last).
    ``logprobs`` are there for each of them where they were asked for."""

    id: str
    tokens: list[int]
    origins: list[Origin]
    logprobs: list[Logprobs] | None = None


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """Loop -> front, terminal."""

    id: str
    reason: FinishReason
    stats: RequestStats


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Loop -> front, terminal; with ``id`` None the whole loop failed."""

    id: str | None
    error: ErrorBody


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """Loop -> front every 100 ms: load, and once a second the loop's metrics as exposition text.

    A loop that sends none for a while hangs, and its front is not ready. ``quiet_s`` is how long
    ago a hub last had a job.
    """

    running: int
    waiting: int
    slots_used: int
    hubs_usable: int = 0
    redis: bool = False
    quiet_s: float = 0.0
    metrics: bytes | None = None


ToLoop = Submit | Cancel | Hubs | Drain | Stop
ToFront = Started | Admitted | Emitted | Finished | Failed | Snapshot
