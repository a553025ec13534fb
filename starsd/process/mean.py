"""A mean that forgets."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHT = 0.1
"""Of the newest."""


@dataclass
class Mean:
    """A decayed mean; the first few count the same."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(WEIGHT, 1 / self.count) * (value - self.value)
