"""Writing draft jobs: what a hub lacks of a sequence, in entries of bounded size."""

from __future__ import annotations

from services.target.depth import Plan
from services.target.features import Features
from services.target.sequence import SentRound, Sequence
from starsd.bus.interface import TargetBus
from starsd.protocol.messages import MAX_NODES, MAX_TOKENS_PER_ENTRY, Propose
from starsd.protocol.pods import HubPod, Needs, Offer
from starsd.protocol.tokens import pack_tokens, prefix_digest

MAX_ATTEMPTS = 4
MIN_TTL_MS = 50
"""Stream clocks count whole milliseconds; a ttl of a few would expire jobs that are fresh."""
TOKEN_BYTES = 4
PAYLOAD_BYTES = TOKEN_BYTES * MAX_TOKENS_PER_ENTRY
"""Tokens and features of one entry; the rest of it is room for everything else."""


class Jobs:
    """Sends the jobs of one session and notes in each sequence what was sent when."""

    def __init__(self, bus: TargetBus, session: str, features: Features) -> None:
        self._bus = bus
        self._session = session
        self._features = features
        self.ttl_s = 0.0

    def possible(self, sequence: Sequence, offer: Offer) -> bool:
        """Whether there is what such a drafter needs."""
        return offer.needs is None or self._features.ready(sequence)

    def first(self, sequence: Sequence, offer: Offer, plan: Plan, now: float) -> None:
        """The first job of an epoch, for whichever hub of that offer takes it."""
        job = self._job(sequence, offer.needs, 0, len(sequence.tokens), plan)
        self._bus.send_first(offer.digest, job)
        sequence.star.record(_sent(job, plan, now, len(sequence.tokens)))

    def next(
        self, sequence: Sequence, hub: HubPod, plan: Plan, now: float, attempt: int = 0
    ) -> None:
        """A new round for the sequence's hub; if its prefix needs several entries, several rounds
        of which only the last drafts."""
        star = sequence.star
        base, length = star.have, len(sequence.tokens)
        unread = length - base
        while base < length or plan.depth:
            star.round += 1
            star.attempt = attempt
            job = self._job(sequence, hub.offer.needs, base, length, plan)
            self._bus.send_hub(hub.id, job)
            base += len(job.tokens) // TOKEN_BYTES
            star.record(_sent(job, plan, now, unread))
            if base == length:
                return

    def again(self, sequence: Sequence, hub: HubPod, now: float) -> None:
        """The current round once more, from what the hub has by now; a bounded number of times."""
        star, sent, needs = sequence.star, sequence.star.current, hub.offer.needs
        if sent is None or star.attempt >= MAX_ATTEMPTS:
            star.settle("unanswered")
            return
        if not self.possible(sequence, hub.offer):
            star.settle("features")
            return
        plan = Plan(sent.depth, sent.nodes, sent.awaited)
        if self._reach(sequence, needs, star.have, sent.length) < sent.length:
            self.next(sequence, hub, plan, now, star.attempt + 1)
        else:
            star.attempt += 1
            job = self._job(sequence, needs, star.have, sent.length, plan)
            self._bus.send_hub(hub.id, job)

    def _reach(self, sequence: Sequence, needs: Needs | None, base: int, end: int) -> int:
        """Up to which token, at most ``end``, an entry holds the tokens from ``base`` on, each
        with the features of the position before it if a hub should look at them."""
        begin = end if needs is None else self._features.begin(sequence)
        bare = max(0, min(end, begin + 1, base + MAX_TOKENS_PER_ENTRY) - base)
        each = TOKEN_BYTES + (needs.row_bytes if needs is not None else 0)
        return min(end, base + bare + (PAYLOAD_BYTES - TOKEN_BYTES * bare) // each)

    def _packed(
        self, sequence: Sequence, needs: Needs | None, base: int, last: int
    ) -> bytes | None:
        if needs is None:
            return None
        first = max(self._features.begin(sequence), base - 1)
        return self._features.pack(sequence, min(first, last - 1), last - 1)

    def _job(
        self, sequence: Sequence, needs: Needs | None, base: int, end: int, plan: Plan
    ) -> Propose:
        """Tokens ``base`` to ``end`` of a sequence, or as many as one entry may carry."""
        star = sequence.star
        last = self._reach(sequence, needs, base, end)
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
            depth=plan.depth if last == end else 0,
            max_nodes=min(max(plan.depth, plan.nodes), MAX_NODES),
            ttl_ms=max(MIN_TTL_MS, round(1000 * self.ttl_s)),
            sampling=sequence.sampling,
            features=self._packed(sequence, needs, base, last),
            prices=[round(1000 * price) for price in plan.prices[:MAX_NODES]],
            rate=round(plan.rate) if plan.wait else 0,
        )


def _sent(job: Propose, plan: Plan, now: float, unread: int) -> SentRound:
    length = job.base + len(job.tokens) // TOKEN_BYTES
    nodes = job.max_nodes if job.max_nodes > job.depth > 0 else 0
    return SentRound(length, job.depth, now, nodes, plan.wait, unread)
