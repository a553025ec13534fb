"""One request inside the step loop: its tokens, its slot, and its dealings with the star."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import NamedTuple

from services.target.acceptance import Record
from services.target.guess import NOTHING, Guess, Source
from starsd.drafters.ngram import Ngrams
from starsd.grammar.state import GrammarState
from starsd.protocol.frames import FinishReason, Logprobs, Origin, RequestStats, Submit
from starsd.protocol.messages import Foresight
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.processing import Mask

ROUNDS_REMEMBERED = 8
NO_SLOT = -1
MOST_FORCED = 15
"""Tokens of one proposal: with the newest one as many rows as cost what one does."""


class SentRound(NamedTuple):
    """What was known when a round's job left: prefix length in tokens, depth asked, clock, the
    most nodes of a tree (0 asks for a chain), whether a step should wait for the reply, and how
    many tokens the hub had yet to read."""

    length: int
    depth: int
    at: float
    nodes: int = 0
    awaited: bool = True
    unread: int = 0


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
    foresight: Foresight | None = None
    """The newest that its hub told."""
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

    def coming(self, tokens: Tokens[int]) -> bool:
        """Whether a reply that nobody waits for may still say something not known by now."""
        sent = self.current
        if sent is None or sent.awaited or not self.outstanding:
            return False
        return len(tokens) < sent.length + sent.depth

    def hear(self, told: Foresight) -> None:
        """Its hub foresees more, or is at a later round."""
        if self.foresight is None or told.round >= self.foresight.round:
            self.foresight = told

    def settle(self, miss: str) -> None:
        """The current round is answered, without tokens for the reason given ("": with)."""
        self.outstanding = False
        self.miss = miss

    def detach(self, not_before: float, miss: str) -> None:
        """Leave the hub; the next job is a first job of a new epoch."""
        self.epoch += 1
        self.round = self.attempt = self.have = 0
        self.hub = self.max_depth = self.foresight = None
        self.not_before = not_before
        self.sent.clear()
        self.settle(miss)


@dataclass(eq=False)
class Sequence:
    """``cached`` leading tokens have their KV in ``slot``; ``limit`` is the longest it may grow.

    Without a slot it waits: for its first, or, ``preempted``, for its next.
    """

    id: str
    tokens: list[int]
    sampling: SamplingParams
    eos: frozenset[int]
    limit: int
    slot: int = NO_SLOT
    cached: int = 0
    proposal: Guess = NOTHING
    ngrams: Ngrams | None = None
    grammar: GrammarState | None = None
    star: Rounds = field(default_factory=Rounds)
    record: Record | None = None
    spared: tuple[int, Guess] = (0, NOTHING)
    """What was foreseen after so many tokens, when its hub was asked all the same."""
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    fallbacks: int = 0
    repeated: int = 0
    preempted: bool = False
    reused: int = 0
    """Prompt tokens taken over from another sequence."""
    logprobs: int | None = None
    draft_depth: int | None = None
    """Both as in ``Submit``."""
    salt: str = ""
    """Its tenant: nothing is taken over from those of another."""

    @classmethod
    def of(cls, submit: Submit, max_length: int) -> Sequence:
        return cls(
            id=submit.id,
            tokens=list(submit.prompt),
            sampling=submit.sampling,
            eos=frozenset(submit.eos),
            limit=min(max_length, len(submit.prompt) + submit.max_tokens),
            logprobs=submit.logprobs,
            draft_depth=submit.draft_depth,
            salt=submit.salt,
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
    def reach(self) -> int:
        """Most tokens of a proposal of our own."""
        most = self.room - 1 if self.draft_depth is None else min(self.room - 1, self.draft_depth)
        return max(0, most)

    @property
    def speculates(self) -> bool:
        """Its client has not declined proposals."""
        return self.draft_depth != 0

    @property
    def stats(self) -> RequestStats:
        return RequestStats(
            rounds=self.rounds,
            proposed=self.proposed,
            accepted=self.accepted,
            fallbacks=self.fallbacks,
            repeated=self.repeated,
            cached_tokens=self.reused,
        )

    @property
    def allowed(self) -> Callable[[Tokens[int]], Mask] | None:
        """What may follow the text and the tokens given."""
        return None if self.grammar is None else self.grammar.mask

    def adopt(self, length: int) -> None:
        """The KV of the first ``length`` tokens is in the slot, computed by another."""
        self.cached = length
        if not self.preempted:
            self.reused = length

    def preempt(self) -> None:
        """The slot is lost: all tokens are computed again, and what follows stays the same."""
        self.preempted = True
        self.cached = 0
        self.proposal = NOTHING

    def repeat(self, longest: int, least: int = 0) -> None:
        """Propose what the text said before, if ``least`` or more of its end match."""
        if self.ngrams is None:
            self.ngrams = Ngrams(longest)
        again = self.ngrams.propose(self.tokens, least)[: self.reach]
        if again:
            self.proposal = Guess(again, source=Source.NGRAM)

    def jump(self, least: int = 1) -> None:
        """Propose what the grammar leaves no choice about, if it is so many tokens."""
        forced = [] if self.grammar is None else self.grammar.forced()
        forced = forced[: min(self.reach, MOST_FORCED)]
        if len(forced) >= least:
            self.proposal = Guess(forced, source=Source.GRAMMAR)

    def obey(self, *, jump: bool) -> None:
        """Cut the proposal where it breaks the grammar. What is forced says more than what is
        left of it, perhaps."""
        if self.grammar is not None:
            self.proposal = self.proposal.lawful(self.grammar.legal)
            if jump:
                self.jump(len(self.proposal.levels) + 1)

    def accept(self, sampled: Tokens[int], proposal: Guess) -> Emission:
        """Append the target's own tokens, cut at the end of the answer.

        ``sampled`` is what verification returned: the matched path of ``proposal``, then the
        recovered or bonus token.
        """
        tokens, reason = self._cut(sampled)
        self.tokens += tokens
        if self.grammar is not None:
            self.grammar.advance(tokens)
        self.cached = len(self.tokens) - 1
        accepted = min(len(tokens), len(sampled) - 1)
        if proposal:
            self.rounds += 1
            self.proposed += len(proposal)
            self.accepted += accepted
        if self.ngrams is not None and proposal.source is Source.NGRAM:
            self.repeated += accepted
            self.ngrams.learn(accepted)
        origins = [Origin.ACCEPTED] * accepted
        if len(tokens) > accepted:
            origins.append(_last_origin(proposal, sampled))
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
    logprobs: list[Logprobs] | None = None


def _last_origin(proposal: Guess, sampled: Tokens[int]) -> Origin:
    if not proposal:
        return Origin.PLAIN
    path = proposal.path(sampled)
    return Origin.BONUS if path and proposal.is_leaf(path[-1]) else Origin.RECOVERED
