"""What a draft head reads of one sequence besides tokens: the target's states, as jobs bring them.

A head pairs the state of position ``i`` with the token at ``i + 1``. So of a prefix of L tokens it
reads the states of positions up to L - 2, and a pair is ``cached`` with its token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from starsd.engine.interface import Features


def _nothing() -> Features:
    return np.empty((0, 0), np.uint16)


@dataclass
class Feed:
    """``rows`` are those of the positions from ``first`` on through the last but one token's, with
    all that are not cached. The head's own positions count from ``origin``: it sees nothing of
    what was before."""

    origin: int = 0
    first: int = 0
    rows: Features = field(default_factory=_nothing)

    def take(self, base: int, length: int, cached: int, rows: Features) -> int:
        """A job brought ``rows`` for a prefix of ``length`` tokens, new from ``base`` on, of
        which ``cached`` were. Returns how many are now: none after a gap, and none where the head
        can begin earlier than it did."""
        start = length - 1 - len(rows)
        held = self.rows[: max(0, base - 1 - self.first)]
        end = self.first + len(held) if len(held) else -1
        if cached <= self.origin or not self.origin <= start <= max(end, cached - 1):
            self.origin, cached = start, start + 1
        if self.first <= start <= end:
            self.rows = np.concatenate([held[: start - self.first], rows])
        else:
            self.first, self.rows = start, rows
        return cached

    def of(self, start: int, count: int) -> Features:
        """Of ``count`` positions from ``start`` on."""
        return self.rows[start - self.first :][:count]

    def forget(self, before: int) -> None:
        """They will not be read again, but for the last."""
        used = min(before - self.first, len(self.rows) - 1)
        if used > 0:
            self.first, self.rows = self.first + used, self.rows[used:]
