"""Running ahead of a proposal that was sent: what the target may say, and what would be proposed
after that. Whatever it says ends in a node here or was not foreseen."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from starsd.drafters.tree import Branch, Nodes
from starsd.sampling.verification import ROOT

ROW = 32
"""Most tokens of a step for one sequence; ``decoder.c`` has no larger trees."""
STEPS = 24
"""Most for one proposal: about what a target's step has time for. Whoever asks next should not find
the model at it for next to nothing."""
BRANCHES = 64
"""Candidates where the target may leave its proposal: it says an unlikely token then."""
FEW = 8
"""Candidates elsewhere."""
LEAST = 0.0001
"""Confidence below which nothing is followed."""
LEAVING = 3.0
"""A place where the target leaves what it verifies is so much more urgent than its likelihood says:
whatever follows it spares a trip to the hub."""
TOLD = frozenset({3, 4, 6, 8, 12, 16})
"""Steps after which a target is told, besides the last: there may be time for few."""
_LOOKS = 8
"""Nodes that do not fit into a row before it is taken to be full."""


@dataclass(frozen=True)
class Foreseen:
    """A proposal from such a tree. ``expected``: how many of its tokens will come true, by its own
    word. ``exact``: it begins what would have been drafted."""

    tokens: list[int]
    parents: list[int]
    expected: float
    exact: bool


class Ahead(Nodes):
    """Grown the likeliest first, whatever was proposed: to come true a node needs those before it,
    and what follows it is worth as much as it is likely. Where chains are proposed the text in
    which they come true leads the way, however unlikely that is."""

    def __init__(
        self,
        seed: Sequence[int] = (),
        parents: Sequence[int] = (),
        *,
        trees: bool,
        exact: bool,
        at_once: bool = False,
    ) -> None:
        """``seed`` is what the target verifies, ``parents`` as of a proposal; its nodes come first,
        ``at_once`` with the root if they can. ``trees`` are proposed, else chains. ``exact``:
        candidates are those of drafting."""
        super().__init__()
        self._trees, self._exact = trees, exact
        self._verified = {ROOT, *range(len(seed))}
        """Nodes at which the target may end."""
        self._below: defaultdict[int, list[int]] = defaultdict(list)
        self._open: list[tuple[float, int]] = []
        self._read: set[int] = set()
        self._end = ROOT
        """Of the text in which all comes true, so far."""
        self.steps = 0
        self.spent = 0
        """Tokens that went through the model for it."""
        for token, parent in zip(seed, parents, strict=True):
            self._below[parent].append(self._add(parent, token, 0.0))
        if at_once:
            self.frontier += range(len(seed))

    def grow(self, found: Sequence[tuple[Sequence[int], Sequence[float]]]) -> None:
        """As of ``Tree``; all but the unlikely stay."""
        for node, (tokens, confidences) in zip(self.frontier, found, strict=True):
            self._follow(node, tokens, confidences)
        self._offer()
        self.steps += 1
        self.frontier = self._next() if self.steps < STEPS else []

    def foresee(self, said: Sequence[int], depth: int, nodes: int) -> Foreseen | None:
        """What to propose after the target ``said`` so, or, at no ``depth``, what it takes of what
        it was told. None if that was not foreseen."""
        end = ROOT
        for token in said:
            children = (one for one in self._below.get(end, ()) if self._paths[one][-1] == token)
            if (found := next(children, None)) is None:
                return None
            end = found
        branches, levels = self._trees and nodes > depth, depth or nodes
        best = self._best(end, levels, nodes) if branches else self._chain(end, levels)
        if end == ROOT or not best:
            return None
        whole = sum(self._confidences[node] for node in best)
        _, tokens, parents = self._numbered(best, root=end)
        expected = whole / max(LEAST, self._confidences[end])
        chain = parents == [*range(-1, len(parents) - 1)]
        return Foreseen(tokens, [] if chain else parents, expected, self._exact and not branches)

    def _chain(self, end: int, depth: int) -> list[int]:
        """Each followed by its likeliest child."""
        chain: list[int] = []
        while len(chain) < depth and (below := self._below.get(end)):
            end = max(below, key=self._confidences.__getitem__)
            chain.append(end)
        return chain

    def _best(self, end: int, depth: int, count: int) -> list[int]:
        """The likeliest, each after its parent, which has the lower number."""
        found: list[int] = []
        level = [end]
        for _ in range(depth):
            level = [child for node in level for child in self._below.get(node, ())]
            found += level
        return sorted(found, key=lambda node: (-self._confidences[node], node))[:count]

    @property
    def news(self) -> bool:
        """Whether it is time to tell the target."""
        return self.steps in TOLD or (self.steps > 1 and not self.frontier)

    def told(self, most: int) -> Branch:
        """What the target can use of it, likeliest first; each of the things it may say with the
        best that follows, if there is room for that."""
        worth = self._confidences[:]
        for parent, below in self._below.items():
            if below and parent != ROOT:
                best = max(below, key=self._confidences.__getitem__)
                worth[best] = self._confidences[parent]
        useful = [
            node
            for node, parent in enumerate(self._parents)
            if node in self._read or parent not in self._verified
        ]
        some = sorted(sorted(useful, key=worth.__getitem__, reverse=True)[:most])
        return self._numbered(sorted(some, key=self._confidences.__getitem__, reverse=True))

    def _follow(self, node: int, tokens: Sequence[int], confidences: Sequence[float]) -> None:
        before = 1.0 if node == ROOT else self._confidences[node]
        if node not in self._verified:
            tokens = tokens[:FEW]
        known = {self._paths[child][-1]: child for child in self._below[node]}
        leads = not self._trees and node == self._end
        for token, own in zip(tokens, confidences, strict=False):
            confidence = before * min(1.0, own)
            child = known.get(token)
            if child is not None:
                self._confidences[child] = confidence
            elif confidence >= LEAST or leads:
                child = self._add(node, token, confidence)
                self._below[node].append(child)
            if leads and child is not None:
                self._end, leads = child, False

    def _offer(self) -> None:
        """The frontier's children are to be expanded, unless they were with it."""
        self._read.update(self.frontier)
        for child in (child for node in self.frontier for child in self._below[node]):
            if child not in self._read:
                heapq.heappush(self._open, (-self._urgency(child), child))

    def _urgency(self, node: int) -> float:
        """What is verified goes first: it shows where the target may leave it."""
        confidence = self._confidences[node]
        if node in self._verified and confidence >= LEAST:
            return LEAVING + confidence
        return LEAVING * confidence if self._parents[node] in self._verified else confidence

    def _next(self) -> list[int]:
        """The likeliest that fit into a row with all that lead to them."""
        frontier, before = self._lead()
        passed: list[tuple[float, int]] = []
        while self._open and len(before) + len(frontier) < ROW and len(passed) < _LOOKS:
            one = heapq.heappop(self._open)
            node = one[1]
            needed = before | {*self._lineage(self._parents[node])}
            if node in self._read or node in frontier:
                continue
            if len(needed) + len(frontier) < ROW:
                frontier.append(node)
                before = needed
            else:
                passed.append(one)
        for one in passed:
            heapq.heappush(self._open, one)
        return frontier

    def _lead(self) -> tuple[list[int], set[int]]:
        """The end of the text in which all comes true, and what leads to it."""
        if self._trees or self._end in self._read:
            return [], set()
        before = {*self._lineage(self._parents[self._end])}
        return ([self._end], before) if len(before) < ROW else ([], set())
