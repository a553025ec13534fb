"""The seam between the hub's scheduler and a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starsd.drafters.ahead import Ahead, Foreseen
from starsd.drafters.feed import Feed
from starsd.drafters.tree import Tree, price_of
from starsd.drafters.trust import Trust
from starsd.engine.interface import Features
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.compiled import Ranked
from starsd.sampling.verification import matched


@dataclass(eq=False)
class DraftSequence:
    """One sequence at a drafter.

    ``tokens`` is the prefix by the target's word; ``drafted`` continues it, up to ``depth`` deep.
    ``parents`` are indices into ``drafted``, -1 for the prefix; empty means a chain.
    ``cached`` counts leading positions of both together whose state lies in ``slot``. Ids at or
    above ``vocab_limit`` are never proposed: the target lacks them. Where ``max_nodes`` is more
    than ``depth`` the proposal may be a tree; it grows in ``tree`` and is drafted all at once.
    A head reads ``feed``. What is less likely than its price in ``prices`` is not proposed, and
    what is less than ``worth`` not followed; ``expected`` is how many were taken for right, and
    ``sure`` how likely all of a chain are. While nothing is asked, ``ahead`` is what may be;
    ``taken`` is what the target verifies of what it was told.
    """

    slot: int
    sampling: SamplingParams
    vocab_limit: int
    tokens: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    max_nodes: int = 0
    cached: int = 0
    depth: int = 0
    tree: Tree | None = None
    ahead: Ahead | None = None
    taken: Foreseen | None = None
    prices: Sequence[float] = ()
    worth: float = 0.0
    expected: float = 0.0
    sure: float = 1.0
    trust: Trust = field(default_factory=Trust)
    feed: Feed = field(default_factory=Feed)

    @property
    def complete(self) -> bool:
        return len(self.drafted) >= self.depth

    @property
    def idle(self) -> bool:
        """Nothing left to compute: proposal complete and prefix cached."""
        return self.complete and not self.unread

    @property
    def unread(self) -> int:
        """Tokens of the prefix that are not cached."""
        return max(0, len(self.tokens) - self.cached)

    @property
    def width(self) -> int:
        """Tokens that its next row takes at most, before it is cut into chunks."""
        if self.tree is not None:
            return max(1, self.max_nodes)
        held = len(self.tokens) + (0 if self.complete else len(self.drafted))
        return max(1, held - self.cached)

    def foresee(self, base: int, tokens: list[int], depth: int, nodes: int) -> Foreseen | None:
        """What was drafted ahead of such a job, which is yet to be taken."""
        known = len(self.tokens) - base
        if self.ahead is None or tokens[:known] != self.tokens[base:]:
            return None
        return self.ahead.foresee(tokens[known:], depth, nodes)

    def extend(
        self,
        base: int,
        tokens: list[int],
        depth: int,
        max_nodes: int = 0,
        features: Features | None = None,
    ) -> None:
        """The prefix becomes ``self.tokens[:base] + tokens`` and a new proposal starts.

        State that agrees stays cached, tokens drafted earlier included; the rest is rolled back
        by length. A head also takes the job's ``features``; without those of the last position
        but one it can draft nothing.
        """
        before = self.tokens[base:] + self.drafted
        self._judge(tokens[len(self.tokens) - base :])
        self.tokens[base:] = tokens
        self.cached = min(self.cached, base + _common(before, tokens))
        self.drafted, self.parents, self.tree, self.ahead, self.taken = [], [], None, None, None
        self.depth, self.max_nodes, self.expected = depth, max_nodes, 0.0
        self.sure = 1.0
        if features is not None:
            self.cached = self.feed.take(base, len(self.tokens), self.cached, features)
            self.depth = depth if len(self.feed.rows) else 0

    def _judge(self, said: Sequence[int]) -> None:
        """The text went on so, as was proposed or not. Where nothing was proposed, what is known
        fades: whoever is not believed at all would never be heard again."""
        came = len(matched(self.drafted, self.parents or None, said))
        if came < len(said):
            self.trust.note(self.expected, came if self.expected else 0)

    def verified(self, most: int) -> tuple[list[int], list[int]]:
        """What the target verifies at the moment: nodes and their parents."""
        tokens, parents = self.drafted, self.parents
        if self.taken is not None:
            tokens, parents = self.taken.tokens, self.taken.parents
        tokens = tokens[:most]
        return tokens, (parents or [*range(-1, len(tokens) - 1)])[: len(tokens)]

    def adopt(self, foreseen: Foreseen) -> None:
        """The proposal, or its beginning, is what was foreseen."""
        self.drafted, self.parents = foreseen.tokens, foreseen.parents
        if not foreseen.exact:
            self.depth = min(self.depth, len(self.drafted))

    def follow(self, found: Ranked) -> None:
        """A chain goes on with the first of these, if its target gains by that, and ends with what
        isn't worth another step."""
        trust = self.trust.value
        self.sure *= min(1.0, found.confidences[0]) if found.tokens else 0.0
        price = price_of(len(self.drafted), self.prices)
        if found.tokens and self.sure * trust >= price:
            self.drafted.append(found.tokens[0])
            self.expected += self.sure
        if not found.tokens or self.sure * trust < max(price, self.worth):
            self.depth = len(self.drafted)

    def begin(self, nodes: int, width: int, floor: float) -> None:
        """A tree, of which nothing less confident than ``floor`` is followed."""
        trust = self.trust.value
        worth = max(floor, self.worth / trust)
        self.tree = Tree(nodes, self.depth, worth, width, [price / trust for price in self.prices])

    def grow(self, found: Sequence[Ranked]) -> None:
        """The nodes of the tree's frontier may be followed by these. A tree that has none left is
        done: its best is the proposal."""
        assert self.tree is not None
        self.tree.grow(found)
        if not self.tree.frontier:
            self._settle(self.tree)

    def _settle(self, tree: Tree) -> None:
        """Only the prefix stays cached."""
        self.expected = tree.expected
        _, self.drafted, parents = tree.best()
        self.parents = [] if parents == [*range(-1, len(parents) - 1)] else parents
        self.depth = min(self.depth, len(self.drafted))
        self.cached = min(self.cached, len(self.tokens))
        self.tree = None


class Drafter(Protocol):
    """Drafts for many sequences at once; owns their state by slot."""

    @property
    def slots(self) -> int: ...

    @property
    def kv_blocks(self) -> int:
        """As of a ``Runner``: what all slots together may hold; the caller keeps count."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_length(self) -> int: ...

    def step(self, sequences: list[DraftSequence]) -> int:
        """One forward: each sequence advances by a prefill chunk or by one drafted token, as far
        as the token budget of a step goes, those next in ``sequences`` first. Returns the tokens
        it took."""

    def run_ahead(self, sequences: list[DraftSequence]) -> int:
        """One forward past the proposals of sequences that ask for nothing: their ``ahead`` grows,
        which has a ``frontier`` while there is more. What is unread of a prefix is read with the
        first; rows are of ``ROW`` tokens at most. Returns the tokens it took."""

    def release(self, slot: int) -> None:
        """Its sequence is gone: give the slot's memory back."""


def _common(first: list[int], second: list[int]) -> int:
    """Length of the common prefix."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
