"""The hub's desk: takes messages from targets, and sees jobs through until they are answered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count

from services.draft.answers import Answers
from services.draft.pace import Pace, Usefulness
from services.draft.sessions import HubSequence, Session, Sessions
from services.draft.stats import HubStats, Met
from starsd.bus.interface import HubBus, Job
from starsd.drafters.ahead import Foreseen
from starsd.drafters.interface import Drafter, DraftSequence
from starsd.engine.interface import Features
from starsd.errors import ProtocolError
from starsd.protocol.features import unpack_features
from starsd.protocol.messages import (
    Close,
    Have,
    Hello,
    Propose,
    Refused,
    Status,
    Welcome,
)
from starsd.protocol.pods import Offer, incompatibility
from starsd.protocol.tokens import EMPTY_DIGEST, prefix_digest, unpack_tokens
from starsd.settings.draft import DraftSettings

NOTHING = Have(0, EMPTY_DIGEST)
USED: Collection[Met] = ("hit", "part", "taken")


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
        self._pace = Pace(settings.max_depth)
        self._answers = Answers(bus, settings, stats, self._pace)
        self._useful = Usefulness()
        self._arrivals = count()

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
        if close.seq is None:
            self._end(session)
        elif (sequence := session.sequences.get(close.seq)) is not None:
            self._supersede(sequence)
            self._sessions.release(session, sequence)

    def forget(self, reply_keys: set[str]) -> None:
        """Reply streams are gone, and their sessions with them: nobody waits for their jobs."""
        for session in self._sessions.answered_at(reply_keys):
            self._end(session)

    def _end(self, session: Session) -> None:
        for sequence in session.sequences.values():
            self._supersede(sequence)
        self._sessions.drop(session)

    # -- jobs ------------------------------------------------------------------------------------

    def _propose(self, job: Job, asked: Propose) -> None:
        session = self._sessions.get(asked.session)
        if session is None:
            self._answers.at_once(job, asked, Status.NEED_HELLO, NOTHING)
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
            self._extend(job, asked, session, sequence)

    def _newcomer(self, job: Job, asked: Propose, session: Session) -> None:
        if asked.base:
            self._answers.at_once(job, asked, Status.NEED_PREFIX, NOTHING)
            return
        sequence = self._sessions.open(session, asked.seq, asked.sampling)
        if sequence is None:
            self._answers.at_once(job, asked, Status.REFUSED, NOTHING)
        else:
            self._extend(job, asked, session, sequence)

    def _duplicate(self, job: Job, asked: Propose, sequence: HubSequence) -> None:
        """Idempotent: a finished round is answered again, one in progress will be."""
        self._stats.duplicates.inc()
        if sequence.reply is not None:
            self._bus.reply(asked.reply_key, sequence.reply)
        self._bus.done(job)

    def _extend(self, job: Job, asked: Propose, session: Session, sequence: HubSequence) -> None:
        """Take the job's prefix and start drafting on it, unless the job came too late. Without
        memory for it the sequence is given up: its target comes back with all of it."""
        self._register(job, asked, sequence)
        self._supersede(sequence)
        try:
            tokens, features = unpack_tokens(asked.tokens), self._features(asked)
        except ProtocolError:
            self._answers.at_once(job, asked, Status.BAD, sequence.have)
            return
        room = self._drafter.max_length - asked.base - len(tokens)
        depth = min(asked.depth, asked.max_nodes, self._settings.max_depth, room)
        nodes = min(asked.max_nodes, room) if asked.max_nodes > asked.depth else depth
        if (status := self._fault(asked, tokens, sequence.draft)) is not None:
            self._answers.at_once(job, asked, status, sequence.have)
        elif not self._sessions.grow(sequence, asked.base + len(tokens) + nodes):
            self._answers.at_once(job, asked, Status.REFUSED, NOTHING)
            self._sessions.release(session, sequence)
        else:
            self._take_on(asked, sequence, tokens, depth, nodes, features)
            sequence.job, sequence.asked = job, asked
            if sequence.draft.complete:  # the prefix is held; its state follows in later steps
                self.finish(sequence)
            else:
                self._expire(sequence)

    def _fault(self, asked: Propose, tokens: list[int], draft: DraftSequence) -> Status | None:
        """What keeps the job's prefix from being taken."""
        if prefix_digest(draft.tokens[: asked.base]) != asked.digest:
            return Status.NEED_PREFIX
        if (not tokens and not asked.base) or max(tokens, default=0) >= self._drafter.vocab_size:
            return Status.BAD
        return Status.REFUSED if asked.base + len(tokens) > self._drafter.max_length else None

    def _take_on(
        self,
        asked: Propose,
        sequence: HubSequence,
        tokens: list[int],
        depth: int,
        nodes: int,
        features: Features | None,
    ) -> None:
        """A proposal begins, with what was foreseen of it, if that is worth it."""
        draft, ahead = sequence.draft, sequence.draft.ahead
        same = asked.sampling == draft.sampling
        foreseen = draft.foresee(asked.base, tokens, depth, nodes) if nodes and same else None
        draft.sampling, sequence.held = asked.sampling, (asked.epoch, asked.round)
        draft.prices = [price / 1000 for price in asked.prices]
        draft.worth = self._pace.worth(asked.rate)
        draft.extend(asked.base, tokens, depth, nodes, features)
        if ahead is not None and nodes:
            met = self._use(draft, foreseen, depth)
            self._useful.met(met in USED)
            self._stats.foreseen(met)
        self._stats.ran_ahead(ahead, len(draft.verified(nodes)[0]))

    def _use(self, draft: DraftSequence, foreseen: Foreseen | None, depth: int) -> Met:
        """What was foreseen is proposed, or, if nothing is asked, was taken already."""
        if foreseen is None:
            return "miss"
        if not depth:
            draft.taken = foreseen
            return "taken"
        if not foreseen.exact and not self._worth_it(foreseen):
            return "spared"
        draft.adopt(foreseen)
        return "hit" if draft.complete else "part"

    def _worth_it(self, foreseen: Foreseen) -> bool:
        return self._settings.run_ahead == "on" or self._pace.worth_it(foreseen.expected)

    def _register(self, job: Job, asked: Propose, sequence: HubSequence) -> None:
        now = self._clock()
        if sequence.reply is not None and sequence.reply.tokens and asked.depth:
            self._pace.asked(now - sequence.taken_at)
        sequence.order, sequence.arrival = (asked.epoch, asked.round), next(self._arrivals)
        sequence.used_at = sequence.taken_at = now
        sequence.started_at, sequence.steps = None, 0
        sequence.deadline = now + asked.ttl_ms / 1000 - job.age_s

    def _features(self, asked: Propose) -> Features | None:
        """The job's, if the drafter reads any. Raises ProtocolError."""
        if self._offer.needs is None:
            return None
        rows = unpack_features(asked.features or b"", self._offer.needs.width)
        if len(rows) > max(0, asked.base + len(asked.tokens) // 4 - 1):
            raise ProtocolError(f"features of {len(rows)} positions, more than there are")
        return rows

    def _supersede(self, sequence: HubSequence) -> None:
        """A newer message arrived: the job at hand needs no reply any more."""
        if sequence.job is not None:
            self._stats.superseded.inc()
            self._bus.done(sequence.job)
        sequence.job = sequence.asked = sequence.reply = None

    # -- steps -----------------------------------------------------------------------------------

    def expire(self) -> None:
        """Jobs that waited too long cost no drafting."""
        for _, sequence in self._sessions.sequences():
            if sequence.job is not None:
                self._expire(sequence)

    def _expire(self, sequence: HubSequence) -> None:
        """Unless its draft has begun; its prefix is kept in any case."""
        draft = sequence.draft
        if self._clock() > sequence.deadline and not draft.drafted and draft.tree is None:
            draft.depth = 0
            self.finish(sequence, Status.EXPIRED)

    def start(self, batch: Collection[HubSequence], now: float) -> None:
        """A step for them begins."""
        for sequence in batch:
            sequence.steps += 1
            if sequence.started_at is None:
                sequence.started_at = now

    # -- run-ahead -------------------------------------------------------------------------------

    def tell(self, batch: Collection[HubSequence]) -> None:
        """What is foreseen of them by now goes to targets that read it, now and then."""
        for session, sequence in self._sessions.sequences():
            ahead = sequence.draft.ahead
            if session.foresight and sequence in batch and ahead is not None and ahead.news:
                self._answers.foresee(session, sequence, ahead)

    # -- replies ---------------------------------------------------------------------------------

    def finish(self, sequence: HubSequence, status: Status = Status.OK) -> None:
        """Answer the job at hand with what was drafted."""
        job, asked = sequence.job, sequence.asked
        assert job is not None
        assert asked is not None
        spent = sequence.spent(self._clock())
        self._stats.queue_seconds.observe(spent.queue_s)
        self._stats.service_seconds.observe(spent.service_s)
        self._pace.answered(*spent, sequence.steps, sequence.draft.expected)
        reply = self._answers.send(job, asked, status, sequence.have, sequence.draft, spent)
        sequence.follow = self._settings.run_ahead == "on" or self._useful.worth_it()
        sequence.job = sequence.asked = None
        sequence.reply = reply if status is Status.OK else None

    def give_up(self, batch: Collection[HubSequence]) -> None:
        """The drafter failed: refuse the jobs at hand and forget what it was computing."""
        for session, sequence in self._sessions.sequences():
            if sequence in batch:
                if sequence.job is not None and sequence.asked is not None:
                    self._answers.at_once(sequence.job, sequence.asked, Status.REFUSED, NOTHING)
                self._sessions.release(session, sequence)
