"""The transport seam: what the two step loops need of Redis, and nothing more.

Both sides are synchronous and never block unless asked to (``receive(timeout_s)``, ``fileno`` for
``select``). Nothing here raises for a dead link: sends are dropped, ``connected`` turns false, the
implementation reconnects by itself, and the star's own rules (budget, resend, breaker) do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from starsd.protocol.messages import Propose, ToHub, ToTarget


@dataclass(frozen=True)
class QueueGone:
    """An XADD with NOMKSTREAM found no such queue: that hub is gone."""

    queue: str


@dataclass(frozen=True)
class Garbage:
    """An entry that could not be decoded; ``reason`` is for the log, it was already disposed of."""

    reason: str


@dataclass(frozen=True)
class Reconnected:
    """The link came back (or came up first). Replies may have been lost in between."""


TargetEvent = ToTarget | QueueGone | Garbage | Reconnected


class TargetBus(Protocol):
    """A session's arms, owned by the target's step loop."""

    @property
    def reply_key(self) -> str: ...

    @property
    def connected(self) -> bool: ...

    def send_first(self, offer_digest: str, job: Propose) -> None:
        """Queue a sequence's first job for Q_in (created by any hub with that offer)."""

    def send_hub(self, hub: str, message: ToHub) -> None:
        """Queue a message for one hub's sticky queue (NOMKSTREAM)."""

    def flush(self) -> None:
        """Write everything queued, in one write if the socket takes it; keeps the rest."""

    def receive(self) -> list[TargetEvent]:
        """All events that have arrived, without blocking. Also reconnects, heartbeats, renews."""

    def filenos(self) -> list[int]:
        """Descriptors to select for reading while waiting for a reply (may be empty)."""

    def close(self) -> None:
        """Delete Q_out and close the sockets."""


@dataclass(frozen=True)
class Job:
    """One entry of Q_in or of the sticky queue. ``age_s`` is by server clock, never negative."""

    entry: str
    queue: str
    message: ToHub
    age_s: float
    first: bool
    """Came from Q_in."""


@dataclass(frozen=True)
class BadJob:
    """An undecodable, oversized or thrice-delivered entry: the bus has already dead-lettered and
    acknowledged it, and answered ``bad`` if its sender could be read."""

    reason: str


class HubBus(Protocol):
    """The hub's connections, owned by its loop."""

    @property
    def connected(self) -> bool: ...

    def receive(self, timeout_s: float, *, want_first: int) -> list[Job | BadJob]:
        """Jobs that have arrived; waits up to ``timeout_s`` for the first (0: does not wait).

        ``want_first`` is how many first jobs to take from Q_in at most: the free slots. (True is
        one, False none.) A read already posted with Q_in in it may still deliver one when it has
        become 0; the hub then refuses with ``retry_after_ms``.
        """

    def reply(self, reply_key: str, message: ToTarget) -> None:
        """Queue a reply (XADD NOMKSTREAM). Keys outside the star's reply prefix are refused."""

    def done(self, job: Job) -> None:
        """Queue XACK and XDEL of a job. Call after ``reply``: at least once, never lost."""

    def flush(self) -> list[str]:
        """Write replies, then acknowledgements. Returns reply keys found gone since last time."""

    def filenos(self) -> list[int]:
        """Descriptors to select for reading."""

    def close(self) -> None: ...


__all__ = [
    "BadJob",
    "Garbage",
    "HubBus",
    "Job",
    "QueueGone",
    "Reconnected",
    "TargetBus",
    "TargetEvent",
]
