"""Writing draft jobs: what a hub lacks of a sequence, in entries of bounded size."""

from __future__ import annotations

from services.target.sequence import SentRound, Sequence
from starsd.bus.interface import TargetBus
from starsd.protocol.messages import MAX_NODES, MAX_TOKENS_PER_ENTRY, Propose
from starsd.protocol.tokens import pack_tokens, prefix_digest

MAX_ATTEMPTS = 4
MIN_TTL_MS = 50
"""Stream clocks count whole milliseconds; a ttl of a few would expire jobs that are fresh."""


class Jobs:
    """Sends the jobs of one session and notes in each sequence what was sent when."""

    def __init__(self, bus: TargetBus, session: str) -> None:
        self._bus = bus
        self._session = session
        self.ttl_s = 0.0

    def first(self, sequence: Sequence, offer: str, depth: int, now: float) -> None:
        """The first job of an epoch, for whichever hub of that offer takes it."""
        job = self._job(sequence, 0, len(sequence.tokens), depth)
        self._bus.send_first(offer, job)
        sequence.star.record(SentRound(len(job.tokens) // 4, job.depth, now))

    def next(self, sequence: Sequence, hub: str, depth: int, now: float) -> None:
        """A new round for the sequence's hub; if its prefix needs several entries, several rounds
        of which only the last drafts."""
        star = sequence.star
        base, length = star.have, len(sequence.tokens)
        while base < length or depth:
            star.round += 1
            star.attempt = 0
            job = self._job(sequence, base, length, depth)
            self._bus.send_hub(hub, job)
            base += len(job.tokens) // 4
            star.record(SentRound(base, job.depth, now))
            if base == length:
                return

    def again(self, sequence: Sequence, hub: str, now: float) -> None:
        """The current round once more, from what the hub has by now; a bounded number of times."""
        star, sent = sequence.star, sequence.star.current
        if sent is None or star.attempt >= MAX_ATTEMPTS:
            star.settle("unanswered")
        elif sent.length - star.have > MAX_TOKENS_PER_ENTRY:
            self.next(sequence, hub, sent.depth, now)
        else:
            star.attempt += 1
            self._bus.send_hub(hub, self._job(sequence, star.have, sent.length, sent.depth))

    def _job(self, sequence: Sequence, base: int, end: int, depth: int) -> Propose:
        """Tokens ``base`` to ``end`` of a sequence, or as many as one entry may carry."""
        star = sequence.star
        last = min(end, base + MAX_TOKENS_PER_ENTRY)
        return Propose(
            session=self._session,
            seq=sequence.id,
            epoch=star.epoch,
            round=star.round,
            attempt=star.attempt,
            reply_key=self._bus.reply_key,
            base=base,
            digest=prefix_digest(sequence.tokens[:base]),
            tokens=pack_tokens(sequence.tokens[base:last]),
            depth=depth if last == end else 0,
            max_nodes=min(depth, MAX_NODES),
            ttl_ms=max(MIN_TTL_MS, round(1000 * self.ttl_s)),
            sampling=sequence.sampling,
        )
