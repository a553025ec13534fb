"""The hubs a target knows: which it may use, how quick they are, and when to stop waiting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from starsd.protocol.messages import Limits
from starsd.protocol.pods import HubPod, Offer

LATENCY_WEIGHT = 0.2
VAIN_PROBES = 3
"""Probes of an open breaker without a timely answer, after which sequences look elsewhere."""


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
    probes: int = 0

    @property
    def open(self) -> bool:
        return self.missed >= self.misses

    @property
    def stuck(self) -> bool:
        """It stays open."""
        return self.open and self.probes > VAIN_PROBES

    def timely(self) -> None:
        self.missed = self.probes = 0

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
            self.probes += 1
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
    overhead_s: float | None = None
    """Of a round trip, what isn't drafting: the way there and back, and the queue."""
    level_s: float = 0.0
    """Drafting time of a level."""
    answered: bool = False
    """Some reply was timely since the last step."""

    @property
    def usable(self) -> bool:
        return self.limits is not None and not self.refused

    def observe(
        self, latency_s: float, service_s: float, levels: int, current: bool = True
    ) -> None:
        """Decayed means of round trips; a first one stands alone. The hub's word for its part
        counts as far as it fits. Where it was not ``current``, but had a text to read first, a
        round counts only if it was quicker than expected all the same."""
        if not current and latency_s >= self.trip_s(levels):
            return
        service_s = min(service_s, latency_s)
        overhead_s, level_s = latency_s - service_s, service_s / levels
        if self.overhead_s is None:
            self.overhead_s, self.level_s = overhead_s, level_s
        self.overhead_s += LATENCY_WEIGHT * (overhead_s - self.overhead_s)
        self.level_s += LATENCY_WEIGHT * (level_s - self.level_s)

    def trip_s(self, levels: int) -> float:
        """Expected round trip of a job of so many levels; 0 until one was seen."""
        return (self.overhead_s or 0.0) + self.level_s * levels

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

    def best_offer(self) -> Offer | None:
        """The offer with the most free slots, of hubs worth sending to."""
        room: dict[str, int] = {}
        offers: dict[str, Offer] = {}
        for hub in self.usable():
            digest = hub.pod.offer.digest
            offers[digest] = hub.pod.offer
            room[digest] = room.get(digest, 0) + 1 + hub.pod.free_slots
        return offers[max(sorted(room), key=room.__getitem__)] if room else None

    def of_offer(self, offer: Offer) -> list[Hub]:
        return [hub for hub in self.usable() if hub.pod.offer == offer]

    def other_than(self, hub_id: str | None) -> bool:
        """Whether another hub answers in time."""
        return any(hub.pod.id != hub_id and not hub.breaker.open for hub in self.usable())

    def read_features(self, besides: str) -> bool:
        """Whether any but this one gets features from us."""
        return any(
            hub.pod.offer.needs is not None and not hub.refused
            for hub_id, hub in self.known.items()
            if hub_id != besides
        )
