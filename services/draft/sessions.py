"""What the hub remembers of its targets: sessions, their sequences, and who holds which slot."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from services.draft.stats import HubStats
from starsd.bus.interface import Job
from starsd.drafters.interface import DraftSequence
from starsd.protocol.messages import Have, Hello, Proposal, Propose
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import prefix_digest
from starsd.settings import DraftSettings

SESSION_IDLE_S = 600.0
"""A target that died without a close is forgotten after this; a live one just greets again."""


@dataclass(eq=False)
class HubSequence:
    """A sequence, its draft state, and the job being served (``job`` None: none is)."""

    id: str
    draft: DraftSequence
    order: tuple[int, int] = (0, -1)
    """(epoch, round) of the newest job taken; what is lower is superseded."""
    job: Job | None = None
    asked: Propose | None = None
    taken_at: float = 0.0
    used_at: float = 0.0
    served_at: float = 0.0
    reply: Proposal | None = None
    """The ok reply to the newest job, for duplicates of it."""

    @property
    def have(self) -> Have:
        return Have(len(self.draft.tokens), prefix_digest(self.draft.tokens))

    @property
    def prefix_left(self) -> int:
        """Tokens of prefix still to go through the draft model."""
        return max(0, len(self.draft.tokens) - self.draft.cached)


@dataclass(eq=False)
class Session:
    """One greeted target incarnation."""

    id: str
    reply_key: str
    vocab_size: int
    used_at: float
    sequences: dict[str, HubSequence] = field(default_factory=dict)


class Sessions:
    """All sessions and slots, both bounded."""

    def __init__(
        self, slots: int, settings: DraftSettings, stats: HubStats, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._clock = clock
        self._by_id: dict[str, Session] = {}
        self._free = list(range(slots))
        self._slots = slots

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, session_id: str) -> Session | None:
        return self._by_id.get(session_id)

    def sequences(self) -> Iterator[tuple[Session, HubSequence]]:
        for session in list(self._by_id.values()):
            for sequence in list(session.sequences.values()):
                yield session, sequence

    # -- sessions --------------------------------------------------------------------------------

    def greet(self, hello: Hello) -> Session | None:
        """Open or refresh; None when the limit is reached and every session has sequences."""
        session = self._by_id.get(hello.session)
        if session is None:
            if len(self._by_id) >= self._settings.max_sessions and not self._make_room():
                return None
            vocab_size = hello.facts.vocab_size
            session = Session(hello.session, hello.reply_key, vocab_size, self._clock())
            self._by_id[session.id] = session
        session.reply_key = hello.reply_key
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

    def drop_unreachable(self, reply_keys: set[str]) -> None:
        """Forget the sessions whose reply streams are gone."""
        for session in list(self._by_id.values()):
            if session.reply_key in reply_keys:
                self.drop(session)

    # -- slots -----------------------------------------------------------------------------------

    @property
    def slots_used(self) -> int:
        return self._slots - len(self._free)

    @property
    def room(self) -> int:
        """Newcomers that could be taken now."""
        return len(self._free) + len(self._evictable())

    def open(
        self, session: Session, seq: str, sampling: SamplingParams, vocab_size: int
    ) -> HubSequence | None:
        """A slot for a new sequence, evicting if need be; None when there is no room."""
        if not self._free and (evictable := self._evictable()):
            self._stats.evicted.inc()
            self.release(*min(evictable, key=lambda pair: pair[1].used_at))
        if not self._free:
            return None
        limit = min(session.vocab_size, vocab_size)
        draft = DraftSequence(heapq.heappop(self._free), sampling, limit)
        session.sequences[seq] = sequence = HubSequence(seq, draft)
        return sequence

    def release(self, session: Session, sequence: HubSequence) -> None:
        del session.sequences[sequence.id]
        heapq.heappush(self._free, sequence.draft.slot)

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
