"""The seam between the hub's scheduler and a drafter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from starsd.protocol.pods import Offer
from starsd.protocol.sampling import SamplingParams


@dataclass(eq=False)
class DraftSequence:
    """One sequence at the hub: the agreed prefix, and what the drafter holds of it.

    ``tokens`` is the prefix by the target's word; ``cached`` counts leading positions whose state
    the drafter has in ``slot``, of ``tokens + drafted``.
    """

    tokens: list[int]
    slot: int
    sampling: SamplingParams
    cached: int = 0
    drafted: list[int] = field(default_factory=list)
    depth: int = 0

    @property
    def wants_token(self) -> bool:
        return len(self.drafted) < self.depth

    @property
    def idle(self) -> bool:
        """Nothing left to compute: prefix cached (but its last token), proposal complete."""
        return not self.wants_token and self.cached >= len(self.tokens) - 1


class Drafter(Protocol):
    """Drafts for many sequences at once; owns their state by slot."""

    @property
    def offer(self) -> Offer: ...

    @property
    def free_slots(self) -> int: ...

    def open(self, tokens: list[int], sampling: SamplingParams) -> DraftSequence:
        """Take a slot. Raises OverloadedError when none is free."""

    def close(self, sequence: DraftSequence) -> None:
        """Give the slot back."""

    def extend(self, sequence: DraftSequence, tokens: list[int], keep: int) -> None:
        """The prefix becomes ``sequence.tokens[:keep] + tokens``; what was drafted and agrees stays
        cached, the rest is rolled back by length."""

    def step(self, sequences: list[DraftSequence]) -> None:
        """One forward for all: each advances by a prefill chunk or by one drafted token."""
