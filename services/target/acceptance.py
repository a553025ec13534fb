"""How often a hub's guesses come true: by position, by shape of proposal, target and sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from services.target.guess import Guess

DECAY = 0.98
"""Weight of a round against the one after it."""
PRIOR_ROUNDS = 16.0
"""What is believed before counts as much as so many rounds."""
ANSWER_ROUNDS = 6.0
"""The same of a single sequence: answers differ, from one in five to nine in ten accepted."""
FIRST_BELIEF = 0.7
"""Of a position nothing is known about; the hope is tested at once."""
CHAIN = 0
"""The shape without branches; others are trees of so many nodes."""


class Acceptance:
    """Decayed counts of one shape: how often a position was reached, and how often it was right."""

    def __init__(self, depth: int) -> None:
        self._tried = [0.0] * depth
        self._right = [0.0] * depth

    def note(self, levels: int, accepted: int) -> None:
        """A proposal of so many levels at most was verified, the first ``accepted`` of them right.
        What a hub left out, since it did not believe in it, counts as wrong."""
        self._tried = [DECAY * count for count in self._tried]
        self._right = [DECAY * count for count in self._right]
        for position in range(min(accepted + 1, levels, len(self._tried))):
            self._tried[position] += 1.0
            self._right[position] += position < accepted

    def rates(self, believed: Sequence[float] | None = None) -> list[float]:
        """``[depth]``: chance of each position to be right where those before it are.

        Counts are shrunk towards what is ``believed`` of the position, or, where there is no such
        belief, towards the position before: what is not asked for any more is hoped for again.
        A sequence of which little is known may be one of the better ones: only asking tells.
        """
        rates: list[float] = []
        hope, prior = FIRST_BELIEF, PRIOR_ROUNDS if believed is None else ANSWER_ROUNDS
        for position, (tried, right) in enumerate(zip(self._tried, self._right, strict=True)):
            hope = believed[position] if believed is not None else hope
            hope = (right + prior * hope) / (tried + prior)
            rates.append(hope)
        if believed is not None and rates:
            rates[0] = min(1.0, rates[0] + _doubt(rates[0], self._tried[0]))
        return rates


def _doubt(rate: float, tried: float) -> float:
    """How much better than thought a sequence may well be: half a standard deviation before it was
    ever tried, and soon nothing."""
    deviation = math.sqrt(rate * (1 - rate) / (ANSWER_ROUNDS + 1))
    return deviation / 2 * ANSWER_ROUNDS / (ANSWER_ROUNDS + tried)


class Record:
    """Acceptance of every shape that a proposal may have.

    Nodes of a tree come best first, so a round with a larger tree also tells what a smaller one
    would have given, and what its best path would have given as a chain.
    """

    def __init__(self, depth: int, shapes: Sequence[int]) -> None:
        """``shapes`` include ``CHAIN``."""
        self._by_shape = {nodes: Acceptance(depth) for nodes in shapes}

    def note(self, guess: Guess, path: Sequence[int]) -> None:
        """A proposal was verified, and the nodes in ``path`` were right."""
        levels = max(guess.asked, len(guess.levels))
        for nodes, acceptance in self._by_shape.items():
            if nodes == CHAIN:
                acceptance.note(levels, guess.spine(path))
            elif nodes <= guess.allowed:
                acceptance.note(levels, sum(node < nodes for node in path))

    def rates(self, nodes: int, believed: Sequence[float] | None = None) -> list[float]:
        """Of one shape; ``believed`` are the target's rates where this is a sequence's record."""
        return self._by_shape[nodes].rates(believed)


def surviving(rates: Sequence[float]) -> list[float]:
    """``[depth]``: chance of each position to be accepted, with all before it."""
    chances, chance = [], 1.0
    for rate in rates:
        chance *= rate
        chances.append(chance)
    return chances
