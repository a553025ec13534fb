"""How far a draft's confidence may be believed."""

from __future__ import annotations

from dataclasses import dataclass

PRIOR = 4.0
"""Tokens that count as expected, and as come true, before there were any."""
DECAY = 0.98
"""Weight of a round against the one after it."""


@dataclass
class Trust:
    """In one text. Texts differ in how easy they are, and the best of many candidates looks surer
    than it is, the more so the higher the temperature."""

    expected: float = 0.0
    came: float = 0.0

    def note(self, expected: float, came: int) -> None:
        """Of a proposal so many tokens should come true, and so many did."""
        self.expected = DECAY * self.expected + expected
        self.came = DECAY * self.came + came

    @property
    def value(self) -> float:
        """What a confidence is to be multiplied with."""
        return (self.came + PRIOR) / (self.expected + PRIOR)
