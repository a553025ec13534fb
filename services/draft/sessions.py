"""What the hub remembers of its targets: sessions, their sequences, and who holds which slot."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from services.draft.stats import HubStats
from starsd.bus.interface import Job
from starsd.drafters.ahead import ROW
from starsd.drafters.interface import Drafter, DraftSequence
from starsd.engine.kv_budget import KvBudget
from starsd.protocol.messages import Have, Hello, Proposal, Propose
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import prefix_digest
from starsd.settings.draft import DraftSettings

SHORT = 16
"""A row up to this long costs about what one of a token costs; longer ones are prefixes."""
LEFT = 8
"""Tokens that a job's own row takes along at no cost."""
SESSION_IDLE_S = 600.0
"""A target that died without a close is forgotten after this; a live one just greets again."""


class Spent(NamedTuple):
    """Time of a job: readable but not computed for, then until its reply."""

    queue_s: float
    service_s: float


@dataclass(eq=False)
class HubSequence:
    """A sequence, its draft state, and the job being served (``job`` None: none is)."""

    id: str
    target: str
    draft: DraftSequence
    order: tuple[int, int] = (0, -1)
    """(epoch, round) of the newest job taken; what is lower is superseded."""
    held: tuple[int, int] = (0, 0)
    """Of the one whose prefix is held."""
    job: Job | None = None
    asked: Propose | None = None
    arrival: int = 0
    """Of its newest job, among all."""
    deadline: float = 0.0
    """Clock time from which that job is no longer worth drafting for."""
    taken_at: float = 0.0
    started_at: float | None = None
    """When the draft model first computed for that job."""
    steps: int = 0
    """That it took part in since."""
    used_at: float = 0.0
    follow: bool = True
    """Whether its proposal is worth running ahead of."""
    reply: Proposal | None = None
    """The ok reply to the newest job, for duplicates of it."""

    @property
    def foreseeable(self) -> bool:
        """Nothing is asked, and there is more to foresee."""
        ahead = self.draft.ahead
        more = bool(self.draft.tokens) if ahead is None else bool(ahead.frontier)
        return more and self.follow and self.job is None and self.draft.unread <= SHORT

    @property
    def have(self) -> Have:
        return Have(len(self.draft.tokens), prefix_digest(self.draft.tokens))

    def spent(self, now: float) -> Spent:
        """By the job at hand."""
        assert self.job is not None
        started = now if self.started_at is None else self.started_at
        return Spent(self.job.age_s + started - self.taken_at, now - started)


@dataclass(eq=False)
class Session:
    """One greeted target incarnation."""

    id: str
    target: str
    reply_key: str
    vocab_size: int
    used_at: float
    foresight: bool = False
    """It reads what is foreseen."""
    sequences: dict[str, HubSequence] = field(default_factory=dict)


class Sessions:
    """All sessions, slots and their memory, all bounded."""

    def __init__(
        self,
        drafter: Drafter,
        settings: DraftSettings,
        stats: HubStats,
        clock: Callable[[], float],
    ) -> None:
        self._drafter = drafter
        self._settings = settings
        self._stats = stats
        self._clock = clock
        self._by_id: dict[str, Session] = {}
        self._free = list(range(drafter.slots))
        self.budget = KvBudget(drafter.kv_blocks)

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, session_id: str) -> Session | None:
        return self._by_id.get(session_id)

    def sequences(self) -> Iterator[tuple[Session, HubSequence]]:
        for session in list(self._by_id.values()):
            for sequence in list(session.sequences.values()):
                yield session, sequence

    def waiting(self) -> list[HubSequence]:
        """Those with work. What is left of a prefix when nothing is asked may be read ahead, or
        with the next job."""
        left = 0 if self._settings.run_ahead == "off" else LEFT
        return [
            one
            for _, one in self.sequences()
            if not one.draft.idle and (one.job is not None or one.draft.unread > left)
        ]

    # -- sessions --------------------------------------------------------------------------------

    def greet(self, hello: Hello) -> Session | None:
        """Open or refresh; None when the limit is reached and every session has sequences."""
        session = self._by_id.get(hello.session)
        if session is None:
            if len(self._by_id) >= self._settings.max_sessions and not self._make_room():
                return None
            vocab_size = hello.facts.vocab_size
            session = Session(
                hello.session, hello.target, hello.reply_key, vocab_size, self._clock()
            )
            self._by_id[session.id] = session
        session.reply_key, session.foresight = hello.reply_key, hello.foresight
        session.used_at = self._clock()
        return session

    def _make_room(self) -> bool:
        """Forget the empty session used longest ago."""
        empty = [session for session in self._by_id.values() if not session.sequences]
        if not empty:
            return False
        del self._by_id[min(empty, key=lambda session: session.used_at).id]
        return True

    def drop(self, session: Session) -> None:
        for sequence in list(session.sequences.values()):
            self.release(session, sequence)
        self._by_id.pop(session.id, None)

    def answered_at(self, reply_keys: set[str]) -> list[Session]:
        """Those with these reply streams."""
        return [session for session in self._by_id.values() if session.reply_key in reply_keys]

    # -- slots -----------------------------------------------------------------------------------

    @property
    def slots_used(self) -> int:
        return self._drafter.slots - len(self._free)

    @property
    def room(self) -> int:
        """Newcomers that could be taken now, if they are short."""
        return min(len(self._free), self.budget.unused) + len(self._evictable())

    def open(self, session: Session, seq: str, sampling: SamplingParams) -> HubSequence | None:
        """A slot for a new sequence, evicting if need be; None when there is none."""
        if not self._free and not self._evict():
            return None
        limit = min(session.vocab_size, self._drafter.vocab_size)
        draft = DraftSequence(heapq.heappop(self._free), sampling, limit)
        session.sequences[seq] = sequence = HubSequence(seq, session.target, draft)
        return sequence

    def grow(self, sequence: HubSequence, length: int) -> bool:
        """Room for so many positions, evicting others if need be; False when there is none."""
        while not self.budget.grow(sequence.draft.slot, length):
            if not self._evict(sequence):
                return False
        return True

    def reach(self, sequence: HubSequence) -> bool:
        """Room for a row of run-ahead, if nobody else wants it."""
        length = len(sequence.draft.tokens) + ROW
        fits = length <= self._drafter.max_length
        return fits and self.budget.grow(sequence.draft.slot, length)

    def release(self, session: Session, sequence: HubSequence) -> None:
        self._stats.ran_ahead(sequence.draft.ahead)
        del session.sequences[sequence.id]
        slot = sequence.draft.slot
        self.budget.free(slot)
        self._drafter.release(slot)
        heapq.heappush(self._free, slot)

    def _evict(self, keep: HubSequence | None = None) -> bool:
        """Of all idle sequences the one used longest ago goes; False when none is idle."""
        idle = [pair for pair in self._evictable() if pair[1] is not keep]
        if idle:
            self._stats.evicted.inc()
            self.release(*min(idle, key=lambda pair: pair[1].used_at))
        return bool(idle)

    def release_idle(self) -> None:
        """Forget sequences nobody has asked about for long, and in time their sessions."""
        now = self._clock()
        for session, sequence in self.sequences():
            if sequence.job is None and sequence.used_at < now - self._settings.seq_idle_s:
                self.release(session, sequence)
        for session in list(self._by_id.values()):
            if not session.sequences and session.used_at < now - SESSION_IDLE_S:
                self.drop(session)

    def _evictable(self) -> list[tuple[Session, HubSequence]]:
        """Sequences unused for long enough, none of whose jobs is being served."""
        limit = self._clock() - self._settings.evict_idle_s
        return [
            (session, one)
            for session, one in self.sequences()
            if one.job is None and one.used_at <= limit
        ]
