"""Doing something once in a while from inside a loop that turns much faster."""

from __future__ import annotations

from collections.abc import Callable


class Every:
    """Due at once, and then whenever ``seconds`` have passed since it was last due."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
