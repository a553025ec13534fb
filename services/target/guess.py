"""What a sequence's next forward verifies: tokens that a hub or the text itself suggests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from starsd.sampling.verification import ROOT, matched


class Source(StrEnum):
    """A label of the metrics."""

    HUB = "hub"
    NGRAM = "ngram"
    GRAMMAR = "grammar"
    FORESEEN = "foreseen"


@dataclass(frozen=True)
class Guess:
    """A tree of tokens below a sequence's newest one: each node's parent, -1 at the top, is before
    it, and siblings differ. ``parents`` None is a chain. Any beginning of it is one, too. ``asked``
    are the levels it might have had, ``allowed`` the nodes of the tree, if it might have been one.
    """

    tokens: list[int]
    parents: list[int] | None = None
    source: Source = Source.HUB
    asked: int = field(default=0, compare=False)
    allowed: int = field(default=0, compare=False)

    @classmethod
    def tree(cls, tokens: list[int], parents: list[int]) -> Guess | None:
        """None if the parents are not those of a tree with distinct siblings."""
        whole = len(tokens) == len(parents)
        if not whole or any(not ROOT <= parent < at for at, parent in enumerate(parents)):
            return None
        if len(set(zip(parents, tokens, strict=True))) < len(tokens):
            return None
        return cls(tokens, None if parents == [*range(-1, len(tokens) - 1)] else parents)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depths(self) -> list[int]:
        """Of each node, from 1."""
        if self.parents is None:
            return [*range(1, len(self) + 1)]
        found: list[int] = []
        for parent in self.parents:
            found.append(1 if parent == ROOT else found[parent] + 1)
        return found

    @property
    def levels(self) -> list[int]:
        """How many nodes there are at each depth."""
        depths = self.depths
        return [depths.count(depth) for depth in range(1, max(depths, default=0) + 1)]

    def path(self, sampled: Sequence[int]) -> list[int]:
        """The nodes that say what was sampled, from the top on; they end where none does."""
        return matched(self.tokens, self.parents, sampled)

    def spine(self, path: Sequence[int]) -> int:
        """How much of a path is best path: each node the first below its parent."""
        if self.parents is None:
            return len(path)
        first = {parent: node for node, parent in reversed([*enumerate(self.parents)])}
        off = (at for at, node in enumerate(path) if first[self.parents[node]] != node)
        return next(off, len(path))

    def is_leaf(self, node: int) -> bool:
        return node == len(self) - 1 if self.parents is None else node not in self.parents

    def cut(self, count: int) -> Guess:
        """Its first ``count`` nodes."""
        if count >= len(self):
            return self
        return self._only(range(max(0, count)))

    def within(self, depth: int) -> Guess:
        """Without what is deeper."""
        return self._only([node for node, down in enumerate(self.depths) if down <= depth])

    def trunk(self) -> Guess:
        """Its best path alone: each node the first below its parent."""
        trunk: list[int] = []
        for node, parent in enumerate(self.parents or range(ROOT, len(self) - 1)):
            if parent == (trunk[-1] if trunk else ROOT):
                trunk.append(node)
        return self._only(trunk)

    def lawful(self, legal: Callable[[Sequence[int]], int]) -> Guess:
        """Every path up to its first illegal token. ``legal`` counts a path's tokens before it."""
        if self.parents is None:
            return self.cut(legal(self.tokens))
        paths: dict[int, list[int]] = {ROOT: []}
        for node, parent in enumerate(self.parents):
            if parent in paths:
                path = [*paths[parent], self.tokens[node]]
                if legal(path) == len(path):
                    paths[node] = path
        return self._only(node for node in paths if node != ROOT)

    def after(self, emitted: Sequence[int]) -> Guess:
        """What it still says once ``emitted`` has come true, or not."""
        path = self.path(emitted)
        if len(path) < len(emitted):
            return NOTHING
        if not path:
            return self
        below, top = [], {path[-1]}
        for node, parent in enumerate(self.parents or range(-1, len(self) - 1)):
            if parent in top:
                top.add(node)
                below.append(node)
        return replace(self._only(below), asked=self.asked - len(emitted))

    def _only(self, nodes: Iterable[int]) -> Guess:
        """These nodes; those whose parents are not among them are at the top."""
        kept = [*nodes]
        tokens = [self.tokens[node] for node in kept]
        if self.parents is None:
            return replace(self, tokens=tokens)
        index = {node: at for at, node in enumerate(kept)}
        parents = [index.get(self.parents[node], ROOT) for node in kept]
        chain = parents == [*range(-1, len(kept) - 1)]
        return replace(self, tokens=tokens, parents=None if chain else parents)


NOTHING = Guess([])
