"""The seam between the hub's scheduler and a drafter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from starsd.protocol.sampling import SamplingParams


@dataclass(eq=False)
class DraftSequence:
    """One sequence at a drafter.

    ``tokens`` is the prefix by the target's word; ``drafted`` continues it up to ``depth`` tokens.
    ``cached`` counts leading positions of both together whose state lies in ``slot``. Ids at or
    above ``vocab_limit`` are never proposed: the target lacks them.
    """

    slot: int
    sampling: SamplingParams
    vocab_limit: int
    tokens: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    cached: int = 0
    depth: int = 0

    @property
    def complete(self) -> bool:
        return len(self.drafted) >= self.depth

    @property
    def idle(self) -> bool:
        """Nothing left to compute: proposal complete and prefix cached."""
        return self.complete and self.cached >= len(self.tokens)

    def extend(self, base: int, tokens: list[int], depth: int) -> None:
        """The prefix becomes ``self.tokens[:base] + tokens`` and a new proposal starts.

        State that agrees stays cached, tokens drafted earlier included; the rest is rolled back
        by length.
        """
        before = self.tokens + self.drafted
        self.tokens[base:] = tokens
        self.cached = min(self.cached, _common(before, self.tokens))
        self.drafted = []
        self.depth = depth


class Drafter(Protocol):
    """Drafts for many sequences at once; owns their state by slot."""

    @property
    def slots(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_length(self) -> int: ...

    def step(self, sequences: list[DraftSequence]) -> None:
        """One forward: each sequence advances by a prefill chunk or by one drafted token, as far
        as the token budget of a step goes, those next in ``sequences`` first."""


def _common(first: list[int], second: list[int]) -> int:
    """Length of the common prefix."""
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
