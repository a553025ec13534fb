"""One request inside the step loop: its tokens, its slot, and its dealings with the star."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import NamedTuple

from starsd.protocol.frames import FinishReason, Origin, RequestStats, Submit
from starsd.protocol.sampling import SamplingParams

ROUNDS_REMEMBERED = 8


class SentRound(NamedTuple):
    """What was known when a round's job left: prefix length in tokens, depth asked, clock."""

    length: int
    depth: int
    at: float


@dataclass
class Rounds:
    """A sequence's conversation with one hub. ``have`` tokens need not be sent again."""

    epoch: int = 0
    round: int = 0
    attempt: int = 0
    hub: str | None = None
    have: int = 0
    max_depth: int | None = None
    not_before: float = 0.0
    outstanding: bool = False
    sent: OrderedDict[int, SentRound] = field(default_factory=OrderedDict)
    miss: str = "no_hub"
    """Why the next step would go without a proposal; a label of the fallback counter."""

    def record(self, sent: SentRound) -> None:
        """A job of the current round left."""
        self.sent[self.round] = sent
        self.outstanding = True
        self.miss = "late"
        while len(self.sent) > ROUNDS_REMEMBERED:
            self.sent.popitem(last=False)

    @property
    def current(self) -> SentRound | None:
        return self.sent.get(self.round)

    def settle(self, miss: str) -> None:
        """The current round is answered, without tokens for the reason given ("": with)."""
        self.outstanding = False
        self.miss = miss

    def detach(self, not_before: float, miss: str) -> None:
        """Leave the hub; the next job is a first job of a new epoch."""
        self.epoch += 1
        self.round = self.attempt = self.have = 0
        self.hub = self.max_depth = None
        self.not_before = not_before
        self.sent.clear()
        self.settle(miss)


@dataclass(eq=False)
class Sequence:
    """``cached`` leading tokens have their KV in ``slot``; ``limit`` is the longest it may grow."""

    id: str
    tokens: list[int]
    sampling: SamplingParams
    eos: frozenset[int]
    slot: int
    limit: int
    cached: int = 0
    proposal: list[int] = field(default_factory=list)
    star: Rounds = field(default_factory=Rounds)
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    fallbacks: int = 0

    @classmethod
    def admit(cls, submit: Submit, slot: int, max_length: int) -> Sequence:
        return cls(
            id=submit.id,
            tokens=list(submit.prompt),
            sampling=submit.sampling,
            eos=frozenset(submit.eos),
            slot=slot,
            limit=min(max_length, len(submit.prompt) + submit.max_tokens),
        )

    @property
    def decoding(self) -> bool:
        """Prefill is over: only the newest token still has to go through the model."""
        return self.cached == len(self.tokens) - 1

    @property
    def room(self) -> int:
        """Tokens that may still be emitted."""
        return self.limit - len(self.tokens)

    @property
    def stats(self) -> RequestStats:
        return RequestStats(
            rounds=self.rounds,
            proposed=self.proposed,
            accepted=self.accepted,
            fallbacks=self.fallbacks,
        )

    def accept(self, sampled: Tokens[int], proposal: Tokens[int]) -> Emission:
        """Append the target's own tokens, cut at the end of the answer.

        ``sampled`` is what verification returned: the matched part of ``proposal``, then the
        recovered or bonus token.
        """
        tokens, reason = self._cut(sampled)
        self.tokens += tokens
        self.cached = len(self.tokens) - 1
        accepted = min(len(tokens), len(sampled) - 1)
        if proposal:
            self.rounds += 1
            self.proposed += len(proposal)
            self.accepted += accepted
        origins = [Origin.ACCEPTED] * accepted
        if len(tokens) > accepted:
            origins.append(_last_origin(accepted, len(proposal)))
        return Emission(tokens, origins, reason)

    def _cut(self, sampled: Tokens[int]) -> tuple[list[int], FinishReason | None]:
        for count, token in enumerate(sampled[: self.room], start=1):
            if token in self.eos:
                return list(sampled[:count]), FinishReason.STOP
        if len(sampled) >= self.room:
            return list(sampled[: self.room]), FinishReason.LENGTH
        return list(sampled), None


class Emission(NamedTuple):
    """What one step gave one sequence."""

    tokens: list[int]
    origins: list[Origin]
    reason: FinishReason | None


def _last_origin(accepted: int, proposed: int) -> Origin:
    if not proposed:
        return Origin.PLAIN
    return Origin.BONUS if accepted == proposed else Origin.RECOVERED
