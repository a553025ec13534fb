"""The target's side of the star: greeting hubs, sending jobs, waiting, hearing replies.

Nothing here may raise for what a hub or Redis does, and nothing here can change a token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import structlog

from services.target import replies
from services.target.hubs import Breaker, Hub, Hubs
from services.target.jobs import MAX_ATTEMPTS, Jobs
from services.target.sequence import SentRound, Sequence
from services.target.stats import StarStats
from starsd.bus.interface import Garbage, QueueGone, Reconnected, TargetBus, TargetEvent
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Close, Facts, Hello, Proposal, Refused, Status, Welcome
from starsd.protocol.pods import HubPod, PodState, incompatibility
from starsd.settings import TargetSettings

log = structlog.get_logger()

FIRST_REPLY_S = 1.0
"""A first job unanswered this long is sent again, then after twice as long, and so on."""
REJOIN_JITTER_S = 0.2
"""Sequences that lost their hub come back spread over this time, not all at once."""
MAX_HUBS = 64
"""Hubs greeted at once; those in use stay, whoever else the registry lists."""
SESSION_REFUSED_S = 30.0
"""A hub that had no room for our session is asked again after this."""
TRANSIT_S = 0.002
"""Allowance for the wire when a reply is dated by the hub's own figures."""


class Star:
    """All conversations of one session. ``plain_step_s`` is the unit of the wait budget."""

    def __init__(
        self,
        bus: TargetBus,
        facts: Facts,
        settings: TargetSettings,
        clock: Callable[[], float],
        stats: StarStats,
    ) -> None:
        self._bus = bus
        self._facts = facts
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._keys = Keys(settings.namespace)
        self._session = f"{settings.id}:{settings.boot}"
        self._jobs = Jobs(bus, self._session)
        self._hubs = Hubs()
        self._sequences: dict[str, Sequence] = {}
        self._random = random.Random(self._session)
        self._received_at = clock()
        self._step_began = clock()
        self._verifying = 0
        self.plain_step_s = 0.0

    # -- registry --------------------------------------------------------------------------------

    @property
    def usable_hubs(self) -> int:
        return sum(1 for _ in self._hubs.usable())

    @property
    def breakers_open(self) -> int:
        return sum(hub.breaker.open for hub in self._hubs.known.values())

    @property
    def connected(self) -> bool:
        return self._bus.connected

    def update_hubs(self, pods: Iterable[HubPod]) -> None:
        """Take the registry's word: greet those new or silent, leave the gone and the draining."""
        listed = {pod.id: pod for pod in pods if pod.state is PodState.READY}
        for hub_id, hub in list(self._hubs.known.items()):
            pod = listed.get(hub_id)
            if pod is None or pod.boot != hub.pod.boot:
                self._lose(hub_id)
            else:
                hub.pod = pod
        for pod in listed.values():
            known = self._hubs.get(pod.id)
            if known is None:
                self._meet(pod)
            elif known.limits is None and not known.refused and self._clock() >= known.greet_at:
                self._greet(pod.id)  # the hello or its answer was lost (FLUSHALL takes both)
        self._bus.flush()

    def _meet(self, pod: HubPod) -> None:
        settings = self._settings
        hub = Hub(pod, Breaker(settings.breaker_misses, settings.probe_interval_s))
        if reason := incompatibility(pod.offer, self._facts):
            hub.refused = True
            self._hubs.known[pod.id] = hub
            self._stats.incompatible(reason.partition(":")[0])
            log.warning("incompatible hub", hub=pod.id, reason=reason)
        elif sum(not other.refused for other in self._hubs.known.values()) < MAX_HUBS:
            self._hubs.known[pod.id] = hub
            self._greet(pod.id)

    def _greet(self, hub_id: str) -> None:
        hello = Hello(
            session=self._session,
            target=self._settings.id,
            boot=self._settings.boot,
            facts=self._facts,
            reply_key=self._bus.reply_key,
        )
        self._bus.send_hub(hub_id, hello)

    def _lose(self, hub_id: str) -> None:
        self._hubs.known.pop(hub_id, None)
        for sequence in self._sequences.values():
            if sequence.star.hub == hub_id:
                self._detach(sequence, "hub_gone")

    def _detach(self, sequence: Sequence, miss: str, pause_s: float = 0.0) -> None:
        jitter = self._random.uniform(0.0, REJOIN_JITTER_S)
        sequence.star.detach(self._clock() + pause_s + jitter, miss)

    # -- jobs ------------------------------------------------------------------------------------

    def admit(self, sequence: Sequence) -> None:
        """Register a new sequence and let a hub start on the prompt, if there is one."""
        self._sequences[sequence.id] = sequence
        if self._settings.draft_depth:
            self._send(sequence, depth=0)

    def request(self, sequences: Iterable[Sequence]) -> None:
        """The step is over. Ask for the next proposals of decoding sequences; a newer round
        supersedes a late one."""
        self._stats.verified(self._verifying, self._clock() - self._step_began)
        for sequence in sequences:
            if sequence.decoding and not sequence.proposal and (depth := self._depth(sequence)):
                self._send(sequence, depth)
        self._bus.flush()

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended; tell its hub, as a hint."""
        self._sequences.pop(sequence.id, None)
        if sequence.star.hub is not None and self._bus.connected:
            self._bus.send_hub(sequence.star.hub, Close(session=self._session, seq=sequence.id))

    def _depth(self, sequence: Sequence) -> int:
        """Tokens worth asking for: the last one of an answer is the target's own anyway."""
        hub = self._hubs.get(sequence.star.hub)
        limits = [self._settings.draft_depth, sequence.room - 1]
        if hub is not None and hub.limits is not None:
            limits.append(hub.limits.max_depth)
        if sequence.star.max_depth is not None:
            limits.append(sequence.star.max_depth)
        return max(0, min(limits))

    def _send(self, sequence: Sequence, depth: int) -> None:
        star, now = sequence.star, self._clock()
        self._jobs.ttl_s = self.budget_s + self.plain_step_s
        if not self._settings.drafting or now < star.not_before:
            return
        if not self._bus.connected:
            star.miss = "redis_down"
        elif star.hub is None:
            self._send_first(sequence, depth, now)
        elif (hub := self._hubs.get(star.hub)) and hub.breaker.may_send(now, depth):
            self._jobs.next(sequence, star.hub, depth, now)
        else:
            star.miss = "breaker"

    def _send_first(self, sequence: Sequence, depth: int, now: float) -> None:
        """To Q_in; nothing more of this sequence until a hub has taken it and replied."""
        star = sequence.star
        offer = self._hubs.best_offer()
        if offer is None:
            star.miss = "no_hub"
        elif star.outstanding:
            self._send_first_again(sequence, offer, depth, now)
        elif any(hub.breaker.may_send(now, depth) for hub in self._hubs.of_offer(offer)):
            self._jobs.first(sequence, offer, depth, now)
        else:
            star.miss = "breaker"

    def _send_first_again(self, sequence: Sequence, offer: str, depth: int, now: float) -> None:
        """Same round, next attempt, with a doubling pause: jobs and replies can be lost."""
        star, sent = sequence.star, sequence.star.current
        if sent is not None and now >= sent.at + FIRST_REPLY_S * 2**star.attempt:
            star.attempt = min(star.attempt + 1, MAX_ATTEMPTS)
            self._jobs.first(sequence, offer, depth, now)

    # -- waiting ---------------------------------------------------------------------------------

    @property
    def budget_s(self) -> float:
        """Longest wait for a proposal."""
        return self._settings.wait_budget * self.plain_step_s

    def filenos(self) -> list[int]:
        """Descriptors that become readable when something has arrived."""
        return self._bus.filenos()

    def due_until(self, sequence: Sequence) -> float | None:
        """Clock time until which a proposal is worth waiting for; None: there is none to come."""
        sent = sequence.star.current
        if sequence.proposal or not sequence.star.outstanding or sent is None or not sent.depth:
            return None
        hub = self._hubs.get(sequence.star.hub)
        if hub is None or not self._bus.connected or not hub.in_time(self.budget_s):
            return None
        return sent.at + self.budget_s

    def step_over(self, sequences: Iterable[Sequence]) -> None:
        """A step is about to run: tell the breakers whose replies did not make it."""
        late: set[str | None] = set()
        self._verifying = 0
        for sequence in sequences:
            star = sequence.star
            self._verifying += bool(sequence.proposal)
            if star.outstanding and star.current and star.current.depth and not sequence.proposal:
                late.add(star.hub)
        for hub_id, hub in self._hubs.known.items():
            was_open = hub.breaker.open
            hub.step(hub_id in late)
            if hub.breaker.open != was_open:
                log.info("breaker", hub=hub_id, open=hub.breaker.open)
        self._step_began = self._clock()

    # -- replies ---------------------------------------------------------------------------------

    def receive(self) -> None:
        """Handle everything that has arrived."""
        for event in self._bus.receive():
            self._handle(event)
        self._received_at = self._clock()
        self._bus.flush()

    def _handle(self, event: TargetEvent) -> None:
        match event:
            case Proposal():
                self._judge(event)
            case Welcome() | Refused():
                self._greeted(event)
            case QueueGone():
                self._queue_gone(event.queue)
            case Reconnected():
                self._reconnected()
            case Garbage():
                self._stats.reply("garbage")
                log.warning("garbage on reply stream", reason=event.reason)

    def _greeted(self, answer: Welcome | Refused) -> None:
        hub = self._hubs.get(answer.hub)
        if hub is None or answer.session != self._session or answer.hub_boot != hub.pod.boot:
            self._stats.reply("stale")
        elif isinstance(answer, Welcome):
            hub.limits = answer.limits
            log.info("welcomed", hub=answer.hub, max_depth=answer.limits.max_depth)
        else:
            hub.limits, hub.greet_at = None, self._clock() + SESSION_REFUSED_S
            log.warning("session refused", hub=answer.hub, reason=answer.reason)

    def _queue_gone(self, queue: str) -> None:
        for hub_id in list(self._hubs.known):
            if self._keys.hub_queue(hub_id) == queue:
                self._lose(hub_id)

    def _reconnected(self) -> None:
        """Replies may be lost, and hubs may have lost us: greet again, ask again."""
        for hub_id, hub in self._hubs.known.items():
            if not hub.refused:
                self._greet(hub_id)
        for sequence in self._sequences.values():
            sequence.star.settle("redis_down")

    def _judge(self, proposal: Proposal) -> None:
        """Take a reply for what it is; anything out of place is counted and changes nothing."""
        sequence = self._sequences.get(proposal.seq)
        hub = self._hubs.get(proposal.hub)
        ours = proposal.session == self._session and hub and proposal.hub_boot == hub.pod.boot
        if sequence is None or hub is None or not ours or not replies.belongs(proposal, sequence):
            self._stats.reply("stale")
            return
        self._stats.reply(proposal.status)
        sequence.star.hub = proposal.hub
        match proposal.status:
            case Status.OK:
                self._take(proposal, sequence, hub)
            case Status.NEED_PREFIX | Status.NEED_HELLO:
                self._help(proposal, sequence)
            case Status.REFUSED:
                self._detach(sequence, "refused", proposal.retry_after_ms / 1000)
            case Status.EXPIRED | Status.BAD:
                replies.learn(proposal, sequence)
                replies.settle(proposal, sequence, proposal.status.value)

    def _take(self, proposal: Proposal, sequence: Sequence, hub: Hub) -> None:
        self._date(proposal, sequence, hub)
        replies.learn(proposal, sequence)
        if not replies.take(proposal, sequence, self._facts.vocab_size):
            self._stats.reply("malformed")

    def _date(self, proposal: Proposal, sequence: Sequence, hub: Hub) -> None:
        """Note how long the reply took. It came after we last looked and before now, with a whole
        step in between perhaps; within that bracket the hub's own figures decide."""
        sent = sequence.star.sent[proposal.round]
        if sent.depth:
            self._time(proposal, sequence, sent)
            told = (proposal.queue_us + proposal.service_us) / 1e6 + TRANSIT_S
            latency = max(self._received_at - sent.at, min(self._clock() - sent.at, told))
            hub.observe(latency)
            hub.answered |= latency <= self.budget_s

    def _time(self, proposal: Proposal, sequence: Sequence, sent: SentRound) -> None:
        """Count where the time of a round went; of the current one, and once."""
        if sequence.star.outstanding and proposal.round == sequence.star.round:
            trip_s = self._clock() - sent.at
            self._stats.round_trip(trip_s, proposal.queue_us, proposal.service_us)

    def _help(self, proposal: Proposal, sequence: Sequence) -> None:
        """The hub lacks us or our prefix: send the current round again with what it needs."""
        if proposal.status is Status.NEED_HELLO:
            self._greet(proposal.hub)
        replies.learn(proposal, sequence)
        if proposal.round == sequence.star.round:
            self._jobs.again(sequence, proposal.hub, self._clock())

    def close(self) -> None:
        """Tell hubs that the session is over, and leave Redis."""
        for hub_id in self._hubs.known:
            self._bus.send_hub(hub_id, Close(session=self._session))
        self._bus.flush()
        self._bus.close()
