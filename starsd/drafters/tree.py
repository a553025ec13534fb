"""A proposal that grows into a tree: the likeliest nodes are expanded, the likeliest are sent.

A node's confidence is the product of its own and of those before it on its path, so no node is
ever above its parent (EAGLE-2, Li et al. 2024).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starsd.sampling.verification import ROOT


class Branch(NamedTuple):
    """Some nodes, each after its parent: their numbers in the tree, their tokens, and the
    index of each one's parent among them (-1: the prefix)."""

    nodes: list[int]
    tokens: list[int]
    parents: list[int]


class Nodes:
    """Candidates by node number, which count up as they are added. ``frontier`` are the nodes to
    expand next."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._paths: list[tuple[int, ...]] = []
        self._confidences: list[float] = []
        self.frontier = [ROOT]

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens from the prefix to ``node``."""
        return () if node == ROOT else self._paths[node]

    def branch(self) -> Branch:
        """The frontier after all that lead to it: the row of a draft step that expands it wants as
        many last logits."""
        nodes = [node for node in self.frontier if node != ROOT]
        before = {step for node in nodes for step in self._lineage(self._parents[node])}
        return self._numbered([*sorted(before), *nodes])

    def _add(self, parent: int, token: int, confidence: float) -> int:
        self._parents.append(parent)
        self._paths.append((*self.path(parent), token))
        self._confidences.append(confidence)
        return len(self._parents) - 1

    def _lineage(self, node: int) -> Iterable[int]:
        """The node and what leads to it, upwards."""
        while node != ROOT:
            yield node
            node = self._parents[node]

    def _numbered(self, nodes: Sequence[int], root: int = ROOT) -> Branch:
        index = {root: ROOT} | {node: place for place, node in enumerate(nodes)}
        tokens = [self._paths[node][-1] for node in nodes]
        return Branch([*nodes], tokens, [index[self._parents[node]] for node in nodes])


def price_of(node: int, prices: Sequence[float]) -> float:
    """The last of ``prices`` is for all others; without any nothing costs."""
    return prices[min(node, len(prices) - 1)] if prices else 0.0


class Tree(Nodes):
    """What is proposed.

    At most ``max_nodes`` are sent, none deeper than ``max_depth`` (from 1) or less confident than
    its ``price_of`` ascending ``prices``, and none less confident than ``worth`` is expanded:
    prices in tokens, of a row that the target verifies and of a draft step. ``frontier`` are the
    nodes to expand next, likeliest first: at most ``width`` of those whose children could be sent.
    It is ``[ROOT]`` at first, and empty when the tree is done.
    """

    def __init__(
        self,
        max_nodes: int,
        max_depth: int,
        worth: float,
        width: int,
        prices: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self._prices = [price_of(node, prices) for node in range(max_nodes)]
        self._max_depth = max_depth
        self._worth = worth
        self._width = width
        self._best: list[int] = []
        self._expanded: set[int] = set()
        self.frontier = self.frontier[:max_depth]

    def grow(self, found: Sequence[tuple[Sequence[int], Sequence[float]]]) -> None:
        """Each node of the frontier may be followed by these distinct tokens, so confidently."""
        full = len(self._best) == len(self._prices)
        last = self._confidences[self._best[-1]] if full else -1.0
        for node, (tokens, confidences) in zip(self.frontier, found, strict=True):
            before = 1.0 if node == ROOT else self._confidences[node]
            for token, own in zip(tokens, confidences, strict=True):
                confidence = before * min(1.0, own)
                if confidence > last and confidence >= self._prices[0]:
                    self._best.append(self._add(node, token, confidence))
        self._expanded.update(self.frontier)
        # what is not among the best now has no way back; ties go to the lower number, so that no
        # node precedes its parent
        self._best.sort(key=self._confidences.__getitem__, reverse=True)
        worth = sum(map(operator.ge, map(self._confidences.__getitem__, self._best), self._prices))
        del self._best[worth:]
        self.frontier = [node for node in self._best if self._is_open(node)][: self._width]

    @property
    def expected(self) -> float:
        """How many of what is sent will come true, by its own word."""
        return sum(self._confidences[node] for node in self._best)

    def best(self) -> Branch:
        """What to send: the likeliest nodes, in an order of which every beginning is the best
        tree of that size."""
        return self._numbered(self._best)

    def _is_open(self, node: int) -> bool:
        return (
            node not in self._expanded
            and len(self._paths[node]) < self._max_depth
            and self._confidences[node] >= self._worth
        )
