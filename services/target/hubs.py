"""The hubs a target knows: which it may use, how quick they are, and when to stop waiting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from starsd.protocol.messages import Limits
from starsd.protocol.pods import HubPod

LATENCY_WEIGHT = 0.2


@dataclass
class Breaker:
    """Open after ``misses`` steps in a row in which every reply due was late.

    While open nobody waits for this hub; single probes go out at intervals, and a timely answer
    to one closes it.
    """

    misses: int
    probe_interval_s: float
    missed: int = 0
    next_probe: float = 0.0

    @property
    def open(self) -> bool:
        return self.missed >= self.misses

    def timely(self) -> None:
        self.missed = 0

    def miss(self) -> None:
        self.missed += 1

    def may_send(self, now: float, depth: int) -> bool:
        """Whether a job may leave; when open, one that drafts takes the turn of a probe.

        A prefix job goes with the probe that follows it: its reply closes nothing, so if it took
        the turn, answers shorter than the interval would leave a breaker open for good.
        """
        if not self.open:
            return True
        if now < self.next_probe:
            return False
        if depth:
            self.next_probe = now + self.probe_interval_s
        return True


@dataclass
class Hub:
    """One incarnation of a hub. ``limits`` None: greeted, not yet welcomed."""

    pod: HubPod
    breaker: Breaker
    limits: Limits | None = None
    refused: bool = False
    """Its offer is of no use to us."""
    greet_at: float = 0.0
    """It had no room for our session; clock time at which to ask again."""
    latency_s: float | None = None
    answered: bool = False
    """Some reply was timely since the last step."""

    @property
    def usable(self) -> bool:
        return self.limits is not None and not self.refused

    def observe(self, latency_s: float) -> None:
        """Decayed mean of round trips; a first one stands alone."""
        if self.latency_s is None:
            self.latency_s = latency_s
        self.latency_s += LATENCY_WEIGHT * (latency_s - self.latency_s)

    def in_time(self, budget_s: float) -> bool:
        """Whether waiting for a reply within the budget makes sense at all."""
        return not self.breaker.open and (self.latency_s is None or self.latency_s <= budget_s)

    def step(self, late: bool) -> None:
        """Once per step: ``late`` says that a reply due before this step did not come."""
        if self.answered:
            self.breaker.timely()
        elif late:
            self.breaker.miss()
        self.answered = False


@dataclass
class Hubs:
    """All hubs by id."""

    known: dict[str, Hub] = field(default_factory=dict)

    def get(self, hub_id: str | None) -> Hub | None:
        return self.known.get(hub_id) if hub_id is not None else None

    def usable(self) -> Iterable[Hub]:
        return (hub for hub in self.known.values() if hub.usable)

    def best_offer(self) -> str | None:
        """Digest of the offer with the most free slots, of hubs worth sending to."""
        room: dict[str, int] = {}
        for hub in self.usable():
            digest = hub.pod.offer.digest
            room[digest] = room.get(digest, 0) + 1 + hub.pod.free_slots
        return max(sorted(room), key=room.__getitem__, default=None)

    def of_offer(self, digest: str) -> list[Hub]:
        return [hub for hub in self.usable() if hub.pod.offer.digest == digest]
