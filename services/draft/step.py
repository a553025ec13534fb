"""The hub: one draft model for every target whose jobs arrive.

``HubLoop.step`` is the whole of drafting: admit, one token for the batch, reply to the finished.
``HubLoop.run_ahead`` is what it does while there is nothing to draft.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog

from services.draft.desk import Desk
from services.draft.pace import SMALLEST, StepCost
from services.draft.scheduler import make_scheduler
from services.draft.sessions import HubSequence, Session, Sessions
from services.draft.stats import HubStats
from starsd.bus.interface import BadJob, HubBus
from starsd.bus.waiting import Waiter
from starsd.drafters.interface import Drafter
from starsd.drafters.lulls import AHEAD_ROWS, Lulls
from starsd.errors import StarsdError
from starsd.log import Seldom
from starsd.process.channel import LoopChannel
from starsd.process.pace import Every
from starsd.process.parts import charged
from starsd.protocol.frames import Drain, Snapshot, Stop, ToLoop
from starsd.protocol.pods import Offer
from starsd.settings.draft import DraftSettings

log = structlog.get_logger()

SNAPSHOT_S = 0.1
METRICS_S = 1.0
SWEEP_S = 1.0


class HubLoop:
    """Serves every greeted target. Knows nothing of models: ``drafter`` computes."""

    def __init__(
        self,
        drafter: Drafter,
        offer: Offer,
        bus: HubBus,
        channel: LoopChannel[ToLoop],
        settings: DraftSettings,
        clock: Callable[[], float] = time.monotonic,
        stats: HubStats | None = None,
    ) -> None:
        self._drafter = drafter
        self._settings = settings
        self._offer = offer
        self._bus = bus
        self._channel = channel
        self._clock = clock
        self._stats = stats or HubStats()
        self._parts = self._stats.parts
        self._wait = Waiter(settings.spin_ms / 1000)
        self._sessions = Sessions(drafter, settings, self._stats, clock)
        self._desk = Desk(bus, offer, drafter, self._sessions, settings, self._stats, clock)
        self._scheduler = make_scheduler(settings)
        self._cost = StepCost(settings.step_tokens)
        self._lulls = Lulls()
        self._sweep_due = Every(SWEEP_S, clock).due
        self._snapshot_due = Every(SNAPSHOT_S, clock).due
        self._metrics_due = Every(METRICS_S, clock).due
        self._complain, self._regret = Seldom(), Seldom()
        self._stopping = self._draining = False
        self._busy_at = -math.inf

    def run(self) -> None:
        """Draft until the front says stop or is gone."""
        while not self._stopping and not self._channel.closed:
            if not self.step() and not self.run_ahead():
                self._idle()
            self._obey()
            if self._sweep_due():
                self.forget_idle()
            self.report()
        self._bus.close()

    @charged("python")
    def step(self) -> bool:
        """Admit whatever waits, then one token for the whole batch. False if there was no work."""
        self._admit()
        batch = self._batch()
        if batch:
            self._draft(batch)
            self._reply(batch)
        self._flush()
        return bool(batch)

    def run_ahead(self) -> bool:
        """While nobody waits, one step past the proposals that were sent, and then look again who
        does. False if it is not worth it."""
        return self._lulls.enough(self._clock()) and self.foresee()

    @charged("python")
    def foresee(self) -> bool:
        """That step. False if there is nothing to foresee."""
        if not (batch := self._idlers()):
            return False
        started = self._clock()
        try:
            self._drafter.run_ahead([one.draft for one in batch])
        except StarsdError as error:
            self._regret(log.exception, "running ahead failed", error=error.message)
            self._desk.give_up(batch)
        else:
            self._desk.tell(batch)
        took_s = self._clock() - started
        self._lulls.stepped(took_s)
        self._stats.ahead_seconds.inc(took_s)
        return True

    def _idlers(self) -> list[HubSequence]:
        """Those of whom least is foreseen, of equals the last served."""
        if self._settings.run_ahead == "off":
            return []
        every = self._sessions.sequences()
        idle = [one for session, one in every if one.foreseeable and self._is_of_use(session)]
        idle.sort(key=lambda one: (one.draft.ahead.steps if one.draft.ahead else 0, -one.used_at))
        return [one for one in idle if self._sessions.reach(one)][:AHEAD_ROWS]

    def _is_of_use(self, session: Session) -> bool:
        """What a head foresees it would draft better once asked: then only telling is of use."""
        exact = self._offer.needs is None
        return exact or session.foresight or self._settings.run_ahead == "on"

    @charged("transport")
    def _admit(self) -> None:
        room = 0 if self._draining else self._sessions.room
        for job in self._bus.receive(0.0, want_first=room):
            if isinstance(job, BadJob):
                self._stats.bad.inc()
                self._complain(log.warning, "bad entry", reason=job.reason)
            else:
                self._busy_at = self._clock()
                self._lulls.ended(self._busy_at)
                self._desk.take(job)

    def _batch(self) -> list[HubSequence]:
        """Of all unfinished work what the scheduler takes."""
        self._desk.expire()
        waiting = self._sessions.waiting()
        return self._scheduler.choose(waiting, self._cost.limit()) if waiting else []

    def _draft(self, batch: list[HubSequence]) -> None:
        started = self._clock()
        self._lulls.ended(started)
        self._desk.start(batch, started)
        drafted = sum(len(one.draft.drafted) for one in batch)
        try:
            tokens = self._drafter.step([one.draft for one in batch])
        except StarsdError as error:
            facts = {"error": error.message, "batch": len(batch)}
            self._regret(log.exception, "drafting failed", **facts)
            self._desk.give_up(batch)
            return
        took_s = self._clock() - started
        if tokens <= SMALLEST * len(batch):  # else it read prefixes, which is another thing
            self._cost.learn(tokens, took_s)
        self._stats.busy_seconds.inc(took_s)
        self._stats.batch.observe(len(batch))
        self._stats.drafted.inc(sum(len(one.draft.drafted) for one in batch) - drafted)

    @charged("transport")
    def _reply(self, batch: list[HubSequence]) -> None:
        for sequence in batch:
            if sequence.job is not None and sequence.draft.complete:
                self._desk.finish(sequence)

    @charged("transport")
    def _flush(self) -> None:
        if gone := self._bus.flush():
            self._desk.forget(set(gone))

    # -- between steps ---------------------------------------------------------------------------

    @charged("transport")
    def _obey(self) -> None:
        for command in self._channel.receive():
            self._draining |= isinstance(command, Drain)
            self._stopping |= isinstance(command, Stop)

    def _idle(self) -> None:
        started = self._clock()
        self._wait([self._channel.fileno(), *self._bus.filenos()], SNAPSHOT_S)
        self._stats.idle_seconds.inc(self._clock() - started)

    def forget_idle(self) -> None:
        """Free the slots of sequences nobody has asked about for long."""
        self._sessions.release_idle()

    @charged("transport")
    def report(self) -> None:
        """A snapshot every 100 ms, with metrics every second."""
        if not self._snapshot_due():
            return
        snapshot = Snapshot(
            running=sum(one.job is not None for _, one in self._sessions.sequences()),
            waiting=0,
            slots_used=self._sessions.slots_used,
            redis=self._bus.connected,
            quiet_s=self._clock() - self._busy_at,
            metrics=self._exposition() if self._metrics_due() else None,
        )
        self._channel.send(snapshot)

    def _exposition(self) -> bytes:
        self._stats.sessions.set(len(self._sessions))
        self._stats.slots_used.set(self._sessions.slots_used)
        self._stats.kv_used.set(self._sessions.budget.used)
        self._stats.kv_blocks.set(self._sessions.budget.blocks)
        self._stats.batch_limit.set(self._cost.best)
        return self._stats.exposition()
