"""Which job leaves, and for whom: to a sequence's own hub, or to any that takes it."""

from __future__ import annotations

import random
from collections.abc import Callable

from services.target.depth import Plan
from services.target.hubs import Hubs
from services.target.jobs import MAX_ATTEMPTS, Jobs
from services.target.sequence import Sequence
from starsd.bus.interface import TargetBus
from starsd.protocol.pods import Offer
from starsd.settings.target import TargetSettings

FIRST_REPLY_S = 1.0
"""A first job unanswered this long is sent again, then after twice as long, and so on."""
REJOIN_JITTER_S = 0.2
"""Sequences that lost their hub come back spread over this time, not all at once."""


class Sender:
    """Of one session. What cannot leave now is noted as the sequence's ``miss``."""

    def __init__(
        self,
        bus: TargetBus,
        settings: TargetSettings,
        clock: Callable[[], float],
        jobs: Jobs,
        hubs: Hubs,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._clock = clock
        self._jobs = jobs
        self._hubs = hubs
        self._random = random.Random(settings.session)

    def send(self, sequence: Sequence, plan: Plan, ttl_s: float) -> None:
        """A job that is worth answering for so long."""
        star, now = sequence.star, self._clock()
        self._jobs.ttl_s = ttl_s
        if now < star.not_before:
            return
        if not self._bus.connected:
            star.miss = "redis_down"
        elif star.hub is None:
            self._send_first(sequence, plan, now)
        elif (hub := self._hubs.get(star.hub)) and not self._jobs.possible(sequence, hub.pod.offer):
            star.miss = "features"
        elif hub and hub.breaker.may_send(now, plan.depth):
            self._jobs.next(sequence, hub.pod, plan, now)
        elif hub and hub.breaker.stuck and self._hubs.other_than(star.hub):
            self.detach(sequence, "moved")
        else:
            star.miss = "breaker"

    def _send_first(self, sequence: Sequence, plan: Plan, now: float) -> None:
        """To Q_in; nothing more of this sequence until a hub has taken it and replied."""
        star = sequence.star
        offer = self._hubs.best_offer()
        if offer is None:
            star.miss = "no_hub"
        elif not self._jobs.possible(sequence, offer):
            star.miss = "features"
        elif star.outstanding:
            self._send_first_again(sequence, offer, plan, now)
        elif any(hub.breaker.may_send(now, plan.depth) for hub in self._hubs.of_offer(offer)):
            self._jobs.first(sequence, offer, plan, now)
        else:
            star.miss = "breaker"

    def _send_first_again(self, sequence: Sequence, offer: Offer, plan: Plan, now: float) -> None:
        """Same round, next attempt, with a doubling pause: jobs and replies can be lost."""
        star, sent = sequence.star, sequence.star.current
        if sent is not None and now >= sent.at + FIRST_REPLY_S * 2**star.attempt:
            star.attempt = min(star.attempt + 1, MAX_ATTEMPTS)
            self._jobs.first(sequence, offer, plan, now)

    def detach(self, sequence: Sequence, miss: str, pause_s: float = 0.0) -> None:
        """It leaves its hub; any may take it, after a pause."""
        jitter = self._random.uniform(0.0, REJOIN_JITTER_S)
        sequence.star.detach(self._clock() + pause_s + jitter, miss)
