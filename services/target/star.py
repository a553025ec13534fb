"""The target's side of the star: asking, waiting, hearing replies.

Nothing here may raise for what a hub or Redis does, and nothing here can change a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from services.target import replies
from services.target.cost import StepShape
from services.target.depth import DepthControl, FixedDepth, Plan
from services.target.features import Features
from services.target.foresight import Foreseeing
from services.target.greeting import Greeter
from services.target.guess import Guess, Source
from services.target.hubs import Hub, Hubs
from services.target.jobs import Jobs
from services.target.sending import Sender
from services.target.sequence import SentRound, Sequence
from services.target.stats import StarStats
from starsd.bus.interface import Garbage, QueueGone, Reconnected, TargetBus, TargetEvent
from starsd.process.parts import charged
from starsd.protocol.keys import Keys
from starsd.protocol.messages import (
    Close,
    Facts,
    Foresight,
    Proposal,
    Refused,
    Status,
    Welcome,
)
from starsd.protocol.pods import HubPod
from starsd.settings.target import TargetSettings

log = structlog.get_logger()

BAD_PAUSE_S = 1.0
"""A hub that could not read us is not sent the whole text again at once."""
TRANSIT_S = 0.002
"""Allowance for the wire when a reply is dated by the hub's own figures."""


class Star:
    """All conversations of one session. ``plain_step_s`` is the unit of the wait budget;
    ``drafting`` says that a hub drafts for us beside this step."""

    def __init__(
        self,
        bus: TargetBus,
        facts: Facts,
        settings: TargetSettings,
        clock: Callable[[], float],
        stats: StarStats,
        features: Features,
        shape: StepShape,
    ) -> None:
        self._bus = bus
        self._vocab_size = facts.vocab_size
        self._settings = settings
        self._depth = settings.draft_depth if settings.drafting else 0
        self._clock = clock
        self._stats = stats
        self._parts = stats.parts
        self._keys = Keys(settings.namespace)
        self._session = settings.session
        self._jobs = Jobs(bus, self._session, features)
        self._hubs = Hubs()
        control = DepthControl if settings.depth_control == "auto" else FixedDepth
        self.control = control(settings.draft_depth, settings.draft_nodes, shape)
        self._foreseeing = Foreseeing(settings, self.control, stats, facts.vocab_size)
        self._greeter = Greeter(bus, facts, settings, clock, stats, features, self._hubs)
        self._sender = Sender(bus, settings, clock, self._jobs, self._hubs)
        self._sequences: dict[str, Sequence] = {}
        self._received_at = clock()
        self._step_began = clock()
        self._verifying = 0
        self.drafting = False
        self.plain_step_s = shape(1)

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
        if self._settings.drafting:
            pods = list(pods)
            for hub_id in self._greeter.gone(pods):
                self._lose(hub_id)
            self._greeter.meet(pods)
            self._bus.flush()

    def _lose(self, hub_id: str) -> None:
        self._hubs.known.pop(hub_id, None)
        for sequence in self._sequences.values():
            if sequence.star.hub == hub_id:
                self._sender.detach(sequence, "hub_gone")

    # -- jobs ------------------------------------------------------------------------------------

    @charged("transport")
    def admit(self, sequence: Sequence) -> None:
        """Register a new sequence and let a hub start on the prompt, if there is one. One that
        was preempted goes on with its hub where it was."""
        if sequence.id in self._sequences:
            return
        self._sequences[sequence.id] = sequence
        if self._depth and sequence.speculates:
            self._send(sequence, Plan(nodes=self.control.shapes[-1]))

    def pause(self, sequence: Sequence) -> None:
        """It lost its slot. Nobody waits for its proposal; its hub keeps what it has."""
        if sequence.star.hub is not None:
            sequence.star.settle("preempted")

    @charged("transport")
    def request(self, sequences: Iterable[Sequence]) -> None:
        """The step is over. Ask for the next proposals of decoding sequences, unless hubs told
        them meanwhile; a newer round supersedes a late one."""
        self._stats.verified(self._verifying, self._clock() - self._step_began)
        if self._settings.reads_foresight:
            self.receive()
        decoding = [one for one in sequences if one.decoding and not one.proposal]
        asking = {one: limit for one in decoding if (limit := self._limit(one))}
        if asking:
            others = len(decoding) - len(asking)
            plan = self.control.plan(asking, others, self._trip_s, self.budget_s)
            foreseen = self._foreseeing.choose(asking, others, plan, self._trip_s)
            for sequence, limit in asking.items():
                own = self._plan_of(sequence, plan, limit)
                if sequence in foreseen:
                    self._foresaw(sequence, foreseen[sequence])
                elif own.depth:
                    self._send(sequence, own._replace(wait=own.wait and not foreseen))
        self._bus.flush()

    def _foresaw(self, sequence: Sequence, guess: Guess) -> None:
        """Its next proposal is there. Its hub gets what it needs to see beyond that one."""
        sequence.proposal = guess
        self._send(sequence, Plan(nodes=len(guess)))

    def _plan_of(self, sequence: Sequence, plan: Plan, limit: int) -> Plan:
        """Its share of the step's plan; a request may insist on a depth of its own."""
        if sequence.draft_depth is None:
            return plan._replace(depth=self.control.levels(sequence, plan, limit))
        return Plan(limit, plan.nodes, wait=self._trip_s(limit) <= self.budget_s)

    def _trip_s(self, depth: int) -> float:
        """Expected time from asking to the last proposal: everyone waits for everyone."""
        return max((hub.trip_s(depth) for hub in self._hubs.usable()), default=0.0)

    def forget(self, sequence: Sequence) -> None:
        """The sequence ended; tell its hub, as a hint."""
        self._sequences.pop(sequence.id, None)
        if sequence.star.hub is not None:
            self._close(sequence.star.hub, sequence.id)

    def _close(self, hub_id: str, sequence_id: str) -> None:
        if self._bus.connected:
            self._bus.send_hub(hub_id, Close(session=self._session, seq=sequence_id))

    def _limit(self, sequence: Sequence) -> int:
        """Levels worth asking for: the last token of an answer is the target's own anyway."""
        star, hub = sequence.star, self._hubs.get(sequence.star.hub)
        if star.coming(sequence.tokens):
            return 0  # late, and a newer job would only delay it
        limits = [self._depth, sequence.room - 1]
        if sequence.draft_depth is not None:
            limits.append(sequence.draft_depth)
        if hub is not None and hub.limits is not None:
            limits.append(hub.limits.max_depth)
        if star.max_depth is not None:
            limits.append(star.max_depth)
        return max(0, min(limits))

    def _send(self, sequence: Sequence, plan: Plan) -> None:
        self._sender.send(sequence, plan, ttl_s=self.budget_s + self.plain_step_s)

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
        if hub is None or not self._bus.connected or not sent.awaited or hub.breaker.open:
            return None
        return sent.at + self.budget_s

    def step_over(self, sequences: Iterable[Sequence]) -> None:
        """A step is about to run: tell the breakers whose replies did not make it."""
        late: set[str | None] = set()
        self._verifying, self.drafting = 0, False
        for sequence in sequences:
            star = sequence.star
            self._verifying += bool(sequence.proposal)
            sent = star.current if star.outstanding and not sequence.proposal else None
            if sent is not None and sent.depth:
                self.drafting = True
                if sent.awaited:
                    late.add(star.hub)
        for hub_id, hub in self._hubs.known.items():
            was_open = hub.breaker.open
            hub.step(hub_id in late)
            if hub.breaker.open != was_open:
                log.info("breaker", hub=hub_id, open=hub.breaker.open)
        self._step_began = self._clock()

    def verified(self, sequence: Sequence, guess: Guess, path: list[int]) -> None:
        """A proposal was verified: the nodes in ``path`` were right."""
        if guess.source is Source.HUB:
            self.control.note(sequence, guess, path)
        elif guess.source is Source.FORESEEN:
            self._foreseeing.verified(path)

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
            case Foresight():
                self._foresee(event)
            case Welcome() | Refused():
                self._greeter.answered(event)
            case QueueGone():
                self._queue_gone(event.queue)
            case Reconnected():
                self._reconnected()
            case Garbage():
                self._stats.reply("garbage")
                log.warning("garbage on reply stream", reason=event.reason)

    def _queue_gone(self, queue: str) -> None:
        for hub_id in list(self._hubs.known):
            if self._keys.hub_queue(hub_id) == queue:
                self._lose(hub_id)

    def _reconnected(self) -> None:
        """Replies may be lost, and hubs may have lost us: greet again, ask again."""
        self._greeter.greet_all()
        for sequence in self._sequences.values():
            sequence.star.settle("redis_down")

    def _ours(self, told: Proposal | Foresight) -> Hub | None:
        """The hub that says so to us, if it is one we know."""
        hub = self._hubs.get(told.hub)
        ours = hub and told.session == self._session and told.hub_boot == hub.pod.boot
        return hub if ours else None

    def _foresee(self, told: Foresight) -> None:
        sequence = self._sequences.get(told.seq)
        if sequence is None or not self._ours(told) or not replies.belongs(told, sequence):
            self._stats.reply("stale")
        else:
            self._stats.reply("foresight")
            sequence.star.hear(told)

    def _judge(self, proposal: Proposal) -> None:
        """Take a reply for what it is; anything out of place is counted and changes nothing."""
        sequence = self._sequences.get(proposal.seq)
        hub = self._ours(proposal)
        if sequence is None or hub is None or not replies.belongs(proposal, sequence):
            self._stats.reply("stale")
            if hub and sequence is None and proposal.have.length:
                self._close(proposal.hub, proposal.seq)  # over before a hub had taken its first job
            return
        self._stats.reply(proposal.status)
        sequence.star.hub = proposal.hub
        match proposal.status:
            case Status.OK:
                self._take(proposal, sequence, hub)
            case Status.NEED_PREFIX | Status.NEED_HELLO:
                self._help(proposal, sequence, hub)
            case Status.REFUSED:
                self._sender.detach(sequence, "refused", proposal.retry_after_ms / 1000)
            case Status.BAD:
                self._sender.detach(sequence, "bad", BAD_PAUSE_S)
            case Status.EXPIRED:
                replies.learn(proposal, sequence)
                replies.settle(proposal, sequence, "expired")

    def _take(self, proposal: Proposal, sequence: Sequence, hub: Hub) -> None:
        self._date(proposal, sequence, hub)
        replies.learn(proposal, sequence)
        drafted = replies.take(proposal, sequence, self._vocab_size)
        if drafted is None:
            self._stats.reply("malformed")
        elif not drafted and drafted.asked:  # it believes in nothing
            self.control.note(sequence, drafted, [])
        elif said := sequence.tokens[sequence.star.sent[proposal.round].length :]:
            self.control.late(sequence, drafted, said)

    def _date(self, proposal: Proposal, sequence: Sequence, hub: Hub) -> None:
        """Note how long the reply took. It came after we last looked and before now, with a whole
        step in between perhaps; within that bracket the hub's own figures decide."""
        sent = sequence.star.sent[proposal.round]
        if sent.depth:
            self._time(proposal, sequence, sent)
            told = (proposal.queue_us + proposal.service_us) / 1e6 + TRANSIT_S
            latency = max(self._received_at - sent.at, min(self._clock() - sent.at, told))
            # what a step may have emitted since the round before; more takes a hub longer to read
            current = sent.unread <= self._depth + 1
            hub.observe(latency, proposal.service_us / 1e6, sent.depth, current)
            hub.answered |= latency <= self.budget_s

    def _time(self, proposal: Proposal, sequence: Sequence, sent: SentRound) -> None:
        """Count where the time of a round went; of the current one, and once."""
        if sequence.star.outstanding and proposal.round == sequence.star.round:
            trip_s = self._clock() - sent.at
            self._stats.round_trip(trip_s, proposal.queue_us, proposal.service_us)

    def _help(self, proposal: Proposal, sequence: Sequence, hub: Hub) -> None:
        """The hub lacks us or our prefix: send the current round again with what it needs."""
        if proposal.status is Status.NEED_HELLO:
            self._greeter.greet(proposal.hub)
        replies.learn(proposal, sequence)
        if proposal.round == sequence.star.round:
            self._jobs.again(sequence, hub.pod, self._clock())

    def close(self) -> None:
        """Tell hubs that the session is over, and leave Redis."""
        for hub_id in self._hubs.known:
            self._bus.send_hub(hub_id, Close(session=self._session))
        self._bus.flush()
        self._bus.close()
