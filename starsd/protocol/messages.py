"""The star's wire contract: what travels on Q_in and Q_out (the table in docs/structure.md).

Each stream entry has one field ``d``: a msgpack array ``[kind, version, ...]``. Fields appended
within a version are ignored by older readers; everything else is strict and bounded. Messages are
idempotent under (session, seq, epoch, round): duplicates, losses and replays change nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from starsd.protocol.sampling import SamplingParams

VERSION = 2
MAX_ENTRY_BYTES = 256 * 1024
MAX_TOKENS_PER_ENTRY = 60_000
MAX_NODES = 15
MAX_FORESEEN = 1024
MAX_DEPTH = 64

Version = Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Reason = Annotated[str, msgspec.Meta(max_length=1024)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Depth = Annotated[int, msgspec.Meta(ge=0, le=MAX_DEPTH)]
TokenBytes = Annotated[bytes, msgspec.Meta(max_length=4 * MAX_TOKENS_PER_ENTRY)]
"""Token ids as little-endian u32; see ``starsd.protocol.tokens``."""
Digest = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
Prices = Annotated[
    list[Annotated[int, msgspec.Meta(ge=0, le=1000)]], msgspec.Meta(max_length=MAX_NODES)
]
"""In thousandths of a token."""


class Status(StrEnum):
    """How a hub answers one job."""

    OK = "ok"
    NEED_PREFIX = "need_prefix"  # digest or base unknown here: resend from ``have``
    NEED_HELLO = "need_hello"  # session unknown here: greet, then resend
    EXPIRED = "expired"  # too old to draft; the prefix was kept all the same
    BAD = "bad"  # undecodable, oversized or out of contract
    REFUSED = "refused"  # no room; see ``retry_after_ms``


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of every wire message: ``version`` right after the kind tag."""

    version: Version = VERSION


class Facts(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a hub must know of a target to draft for it."""

    tokenizer: Name
    vocab_size: Count
    revision: Name
    max_length: Count


class Limits(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a hub grants a session."""

    max_depth: Depth
    max_nodes: Annotated[int, msgspec.Meta(ge=1, le=MAX_NODES)] = MAX_NODES
    max_length: Count = 0


class Hello(Message, frozen=True, tag="hello", kw_only=True):
    """Target -> one hub's sticky queue: open a session. ``foresight``: it reads that kind."""

    session: Name
    target: Name
    boot: Name
    facts: Facts
    reply_key: Key
    foresight: bool = False


class Welcome(Message, frozen=True, tag="welcome", kw_only=True):
    """Hub -> Q_out: the session is open."""

    session: Name
    hub: Name
    hub_boot: Name
    limits: Limits


class Refused(Message, frozen=True, tag="refused", kw_only=True):
    """Hub -> Q_out: the session cannot be served here, and why."""

    session: Name
    hub: Name
    hub_boot: Name
    reason: Reason


class Propose(Message, frozen=True, tag="propose", kw_only=True):
    """Target -> Q_in or sticky queue: draft ``depth`` tokens after this prefix.

    The prefix is ``base`` tokens the hub already vouched for (checked by ``digest``) followed by
    ``tokens``. ``depth`` 0 only extends the prefix. ``attempt`` rises on each resend of a round;
    ``epoch`` when the sequence moves to another hub. ``features``, where the offer needs them, are
    the target's hidden states of the last positions before the prefix's newest token, as many as
    there are rows: of those whose next token is in ``tokens``, what the target has and the hub
    should look at. ``prices``, ascending: what each node more costs the target to verify, which a
    node less likely to be right does not give back. ``rate``: tokens a second that waiting for the
    reply costs it. None, 0: not known, or nothing.
    """

    session: Name
    seq: Name
    epoch: Count
    round: Count
    attempt: Count
    reply_key: Key
    base: Count
    digest: Digest
    tokens: TokenBytes
    depth: Depth
    max_nodes: Annotated[int, msgspec.Meta(ge=0, le=MAX_NODES)]
    ttl_ms: Count
    sampling: SamplingParams
    features: bytes | None = None
    mac: bytes | None = None
    trace: str | None = None
    prices: Prices = []
    rate: Count = 0


class Have(msgspec.Struct, frozen=True, array_like=True):
    """The prefix a hub vouches for: its length in tokens and its digest."""

    length: Count
    digest: Digest


class Proposal(Message, frozen=True, tag="proposal", kw_only=True):
    """Hub -> Q_out: the answer to one job, whatever became of it."""

    session: Name
    seq: Name
    epoch: Count
    round: Count
    attempt: Count
    status: Status
    tokens: TokenBytes
    parents: list[int] | None
    have: Have
    max_depth: Depth
    retry_after_ms: Count
    hub: Name
    hub_boot: Name
    queue_us: Count
    service_us: Count


class Foresight(Message, frozen=True, tag="foresight", kw_only=True):
    """Hub -> Q_out, unasked, where the session reads it: what may be said after the prefix of a
    round, as far as it is foreseen by now. Whatever the target says is the beginning of a path;
    what lies below is what would be proposed then. Likelier nodes come first. A later one of the
    same round replaces it.
    """

    session: Name
    seq: Name
    epoch: Count
    round: Count
    hub: Name
    hub_boot: Name
    tokens: Annotated[bytes, msgspec.Meta(max_length=4 * MAX_FORESEEN)]
    parents: Annotated[list[int], msgspec.Meta(max_length=MAX_FORESEEN)]


class Close(Message, frozen=True, tag="close", kw_only=True):
    """Target -> sticky queue, a hint only: forget one sequence, or the whole session."""

    session: Name
    seq: Name | None = None


ToHub = Hello | Propose | Close
ToTarget = Welcome | Refused | Proposal | Foresight
