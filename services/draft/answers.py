"""What the hub writes to reply streams about jobs, and about what it foresees."""

from __future__ import annotations

from services.draft.pace import Pace
from services.draft.sessions import HubSequence, Session, Spent
from services.draft.stats import HubStats
from starsd.bus.interface import HubBus, Job
from starsd.drafters.ahead import Ahead
from starsd.drafters.interface import DraftSequence
from starsd.protocol.messages import MAX_FORESEEN, Foresight, Have, Proposal, Propose, Status
from starsd.protocol.tokens import pack_tokens
from starsd.settings.draft import DraftSettings


class Answers:
    """With every proposal goes how deep the next one may be (``pace``)."""

    def __init__(self, bus: HubBus, settings: DraftSettings, stats: HubStats, pace: Pace) -> None:
        self._bus = bus
        self._settings = settings
        self._stats = stats
        self._pace = pace

    def at_once(self, job: Job, asked: Propose, status: Status, have: Have) -> None:
        """What takes no drafting."""
        self.send(job, asked, status, have, None, Spent(job.age_s, 0.0))

    def send(
        self,
        job: Job,
        asked: Propose,
        status: Status,
        have: Have,
        draft: DraftSequence | None,
        spent: Spent,
    ) -> Proposal:
        """Reply before acknowledging: at least once, never lost."""
        refused = status is Status.REFUSED
        fixed = self._settings.scheduler == "fifo"  # as the paper has it
        depth = self._settings.max_depth if fixed else self._pace.depth(asked.ttl_ms / 1000)
        reply = Proposal(
            session=asked.session,
            seq=asked.seq,
            epoch=asked.epoch,
            round=asked.round,
            attempt=asked.attempt,
            status=status,
            tokens=pack_tokens(draft.drafted if draft else []),
            parents=draft.parents or None if draft else None,
            have=have,
            max_depth=0 if refused else depth,
            retry_after_ms=self._settings.retry_after_ms if refused else 0,
            hub=self._settings.id,
            hub_boot=self._settings.boot,
            queue_us=round(spent.queue_s * 1e6),
            service_us=round(spent.service_s * 1e6),
        )
        self._stats.answer(status)
        self._bus.reply(asked.reply_key, reply)
        self._bus.done(job)
        return reply

    def foresee(self, session: Session, sequence: HubSequence, ahead: Ahead) -> None:
        """Tell a target what may be proposed next."""
        epoch, number = sequence.held
        _, tokens, parents = ahead.told(MAX_FORESEEN)
        told = Foresight(
            session=session.id,
            seq=sequence.id,
            epoch=epoch,
            round=number,
            hub=self._settings.id,
            hub_boot=self._settings.boot,
            tokens=pack_tokens(tokens),
            parents=parents,
        )
        self._bus.reply(session.reply_key, told)
