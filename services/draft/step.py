"""The hub: one draft model for every target whose jobs arrive.

``HubLoop.step`` is the whole of drafting: admit, one token for the batch, reply to the finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from services.draft.desk import Desk
from services.draft.sessions import HubSequence, Sessions
from services.draft.stats import HubStats
from starsd.bus.interface import BadJob, HubBus
from starsd.bus.waiting import wait_readable
from starsd.drafters.interface import Drafter
from starsd.errors import StarsdError
from starsd.process.channel import LoopChannel
from starsd.process.pace import Every
from starsd.protocol.frames import Snapshot, Stop, ToLoop
from starsd.protocol.pods import Offer
from starsd.settings import DraftSettings

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
    ) -> None:
        self._drafter = drafter
        self._bus = bus
        self._channel = channel
        self._clock = clock
        self._stats = HubStats()
        self._sessions = Sessions(drafter.slots, settings, self._stats, clock)
        self._desk = Desk(bus, offer, drafter, self._sessions, settings, self._stats, clock)
        self._sweep_due = Every(SWEEP_S, clock).due
        self._snapshot_due = Every(SNAPSHOT_S, clock).due
        self._metrics_due = Every(METRICS_S, clock).due
        self._stopping = False

    def run(self) -> None:
        """Draft until the front says stop or is gone."""
        while not self._stopping and not self._channel.closed:
            if not self.step():
                self._idle()
            self._obey()
            if self._sweep_due():
                self.forget_idle()
            self.report()
        self._bus.close()

    def step(self) -> bool:
        """Admit whatever waits, then one token for the whole batch. False if there was no work."""
        self._admit()
        batch = self._batch()
        if batch:
            self._draft(batch)
            self._reply(batch)
        self._sessions.drop_unreachable(set(self._bus.flush()))
        return bool(batch)

    def _admit(self) -> None:
        for job in self._bus.receive(0.0, want_first=self._sessions.room):
            if isinstance(job, BadJob):
                self._stats.bad.inc()
                log.warning("bad entry", reason=job.reason)
            else:
                self._desk.take(job)

    def _batch(self) -> list[HubSequence]:
        """Unfinished work: rows one token away from a draft token first, then prefixes; of each,
        those served longest ago first, so that no target starves another."""
        work = [one for _, one in self._sessions.sequences() if not one.draft.idle]
        return sorted(work, key=lambda one: (one.prefix_left > 1, one.served_at))

    def _draft(self, batch: list[HubSequence]) -> None:
        started = self._clock()
        cached = [one.draft.cached for one in batch]
        drafted = sum(len(one.draft.drafted) for one in batch)
        try:
            self._drafter.step([one.draft for one in batch])
        except StarsdError as error:
            log.exception("drafting failed", error=error.message, batch=len(batch))
            self._desk.give_up(batch)
            return
        now = self._clock()
        for one, before in zip(batch, cached, strict=True):
            if one.draft.cached != before:
                one.served_at = now
        self._stats.busy_seconds.inc(now - started)
        self._stats.batch.observe(len(batch))
        self._stats.drafted.inc(sum(len(one.draft.drafted) for one in batch) - drafted)

    def _reply(self, batch: list[HubSequence]) -> None:
        for sequence in batch:
            if sequence.job is not None and sequence.draft.complete:
                self._desk.finish(sequence)

    # -- between steps ---------------------------------------------------------------------------

    def _obey(self) -> None:
        for command in self._channel.receive():
            if isinstance(command, Stop):
                self._stopping = True

    def _idle(self) -> None:
        started = self._clock()
        wait_readable([self._channel.fileno(), *self._bus.filenos()], SNAPSHOT_S)
        self._stats.idle_seconds.inc(self._clock() - started)

    def forget_idle(self) -> None:
        """Free the slots of sequences nobody has asked about for long."""
        self._sessions.release_idle()

    def report(self) -> None:
        """A snapshot every 100 ms, with metrics every second."""
        if not self._snapshot_due():
            return
        snapshot = Snapshot(
            running=sum(one.job is not None for _, one in self._sessions.sequences()),
            waiting=0,
            slots_used=self._sessions.slots_used,
            redis=self._bus.connected,
            metrics=self._exposition() if self._metrics_due() else None,
        )
        self._channel.send(snapshot)

    def _exposition(self) -> bytes:
        self._stats.sessions.set(len(self._sessions))
        self._stats.slots_used.set(self._sessions.slots_used)
        return self._stats.exposition()
