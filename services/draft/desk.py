"""The hub's desk: takes messages from targets, answers what needs no model, and writes replies."""

from __future__ import annotations

from collections.abc import Callable, Collection

from services.draft.sessions import HubSequence, Session, Sessions
from services.draft.stats import HubStats
from starsd.bus.interface import HubBus, Job
from starsd.drafters.interface import Drafter
from starsd.errors import ProtocolError
from starsd.protocol.messages import (
    Close,
    Have,
    Hello,
    Proposal,
    Propose,
    Refused,
    Status,
    Welcome,
)
from starsd.protocol.pods import Offer, incompatibility
from starsd.protocol.tokens import EMPTY_DIGEST, pack_tokens, prefix_digest, unpack_tokens
from starsd.settings import DraftSettings

NOTHING = Have(0, EMPTY_DIGEST)


class Desk:
    """Every job taken gets a reply or is superseded by a newer one, and is then acknowledged."""

    def __init__(
        self,
        bus: HubBus,
        offer: Offer,
        drafter: Drafter,
        sessions: Sessions,
        settings: DraftSettings,
        stats: HubStats,
        clock: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._offer = offer
        self._drafter = drafter
        self._sessions = sessions
        self._settings = settings
        self._stats = stats
        self._clock = clock

    def take(self, job: Job) -> None:
        """Handle one message."""
        message = job.message
        match message:
            case Hello():
                self._bus.reply(message.reply_key, self._greet(message))
                self._bus.done(job)
            case Close():
                self._close(message)
                self._bus.done(job)
            case Propose():
                self._propose(job, message)

    # -- sessions --------------------------------------------------------------------------------

    def _greet(self, hello: Hello) -> Welcome | Refused:
        hub, boot = self._settings.id, self._settings.boot
        reason = incompatibility(self._offer, hello.facts)
        if reason is None and self._sessions.greet(hello) is None:
            reason = f"{len(self._sessions)} sessions are open; that is the limit"
        if reason is not None:
            return Refused(session=hello.session, hub=hub, hub_boot=boot, reason=reason)
        return Welcome(session=hello.session, hub=hub, hub_boot=boot, limits=self._offer.limits)

    def _close(self, close: Close) -> None:
        session = self._sessions.get(close.session)
        if session is None:
            return
        closing = [session.sequences.get(close.seq)] if close.seq else session.sequences.values()
        for sequence in list(closing):
            if sequence is not None:
                self._supersede(sequence)
                self._sessions.release(session, sequence)
        if close.seq is None:
            self._sessions.drop(session)

    # -- jobs ------------------------------------------------------------------------------------

    def _propose(self, job: Job, asked: Propose) -> None:
        session = self._sessions.get(asked.session)
        if session is None:
            self._answer(job, asked, Status.NEED_HELLO, NOTHING)
            return
        session.used_at = self._clock()
        sequence = session.sequences.get(asked.seq)
        order = (asked.epoch, asked.round)
        if sequence is None:
            self._newcomer(job, asked, session)
        elif order < sequence.order:
            self._stats.superseded.inc()
            self._bus.done(job)
        elif order == sequence.order and (sequence.job or sequence.reply):
            self._duplicate(job, asked, sequence)
        else:
            self._extend(job, asked, sequence)

    def _newcomer(self, job: Job, asked: Propose, session: Session) -> None:
        if asked.base:
            self._answer(job, asked, Status.NEED_PREFIX, NOTHING)
            return
        vocab_size = self._drafter.vocab_size
        sequence = self._sessions.open(session, asked.seq, asked.sampling, vocab_size)
        if sequence is None:
            self._answer(job, asked, Status.REFUSED, NOTHING)
        else:
            self._extend(job, asked, sequence)

    def _duplicate(self, job: Job, asked: Propose, sequence: HubSequence) -> None:
        """Idempotent: a finished round is answered again, one in progress will be."""
        self._stats.duplicates.inc()
        if sequence.reply is not None:
            self._bus.reply(asked.reply_key, sequence.reply)
        self._bus.done(job)

    def _extend(self, job: Job, asked: Propose, sequence: HubSequence) -> None:
        """Take the job's prefix and start drafting on it, unless the job came too late."""
        self._supersede(sequence)
        sequence.order = (asked.epoch, asked.round)
        sequence.used_at = sequence.taken_at = self._clock()
        draft = sequence.draft
        tokens = self._tokens(asked)
        room = self._drafter.max_length - asked.base - len(tokens)
        if prefix_digest(draft.tokens[: asked.base]) != asked.digest:
            self._answer(job, asked, Status.NEED_PREFIX, sequence.have)
        elif (not tokens and not asked.base) or max(tokens, default=0) >= self._drafter.vocab_size:
            self._answer(job, asked, Status.BAD, sequence.have)
        elif room < 0:
            self._answer(job, asked, Status.REFUSED, sequence.have)
        else:
            draft.sampling = asked.sampling
            self._start(job, asked, sequence, tokens, room)

    def _start(
        self, job: Job, asked: Propose, sequence: HubSequence, tokens: list[int], room: int
    ) -> None:
        expired = job.age_s * 1000 > asked.ttl_ms
        depth = min(asked.depth, asked.max_nodes, self._settings.max_depth, room)
        sequence.draft.extend(asked.base, tokens, 0 if expired else depth)
        sequence.job, sequence.asked = job, asked
        self._stats.queue_seconds.observe(job.age_s)
        if sequence.draft.complete:  # the prefix is held; its state follows in later steps
            self.finish(sequence, Status.EXPIRED if expired and asked.depth else Status.OK)

    def _tokens(self, asked: Propose) -> list[int]:
        """The job's tokens; none of them if they do not even unpack."""
        try:
            return unpack_tokens(asked.tokens)
        except ProtocolError:
            return []

    def _supersede(self, sequence: HubSequence) -> None:
        """A newer message arrived: the job at hand needs no reply any more."""
        if sequence.job is not None:
            self._stats.superseded.inc()
            self._bus.done(sequence.job)
        sequence.job = sequence.asked = sequence.reply = None

    # -- replies ---------------------------------------------------------------------------------

    def finish(self, sequence: HubSequence, status: Status = Status.OK) -> None:
        """Answer the job at hand with what was drafted."""
        job, asked = sequence.job, sequence.asked
        assert job is not None
        assert asked is not None
        took_s = self._clock() - sequence.taken_at
        self._stats.service_seconds.observe(took_s)
        reply = self._reply(job, asked, status, sequence.have, sequence.draft.drafted, took_s)
        self._send(job, asked, reply)
        sequence.job = sequence.asked = None
        sequence.reply = reply if status is Status.OK else None

    def give_up(self, batch: Collection[HubSequence]) -> None:
        """The drafter failed: refuse the jobs at hand and forget what it was computing."""
        for session, sequence in self._sessions.sequences():
            if sequence in batch:
                if sequence.job is not None and sequence.asked is not None:
                    self._answer(sequence.job, sequence.asked, Status.REFUSED, NOTHING)
                self._sessions.release(session, sequence)

    def _answer(self, job: Job, asked: Propose, status: Status, have: Have) -> None:
        """Reply without drafting."""
        self._send(job, asked, self._reply(job, asked, status, have, [], 0.0))

    def _send(self, job: Job, asked: Propose, reply: Proposal) -> None:
        """Reply before acknowledging: at least once, never lost."""
        self._stats.answer(reply.status)
        self._bus.reply(asked.reply_key, reply)
        self._bus.done(job)

    def _reply(
        self,
        job: Job,
        asked: Propose,
        status: Status,
        have: Have,
        drafted: list[int],
        took_s: float,
    ) -> Proposal:
        refused = status is Status.REFUSED
        return Proposal(
            session=asked.session,
            seq=asked.seq,
            epoch=asked.epoch,
            round=asked.round,
            attempt=asked.attempt,
            status=status,
            tokens=pack_tokens(drafted),
            parents=None,
            have=have,
            max_depth=0 if refused else self._settings.max_depth,
            retry_after_ms=self._settings.retry_after_ms if refused else 0,
            hub=self._settings.id,
            hub_boot=self._settings.boot,
            queue_us=round(job.age_s * 1e6),
            service_us=round(took_s * 1e6),
        )
