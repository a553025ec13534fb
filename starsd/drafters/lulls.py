"""When a hub with nothing to do should run ahead, and when somebody is about to ask."""

from __future__ import annotations

from collections import deque

from starsd.process.mean import Mean

AHEAD_ROWS = 2
"""Sequences in a step of run-ahead: it must not be long, since whoever asks next waits for it."""
LULL_STEPS = 8
"""A lull shorter than so many steps of run-ahead is left alone; half a step is lost at its end."""
LULLS = 8
"""By so many the next is judged."""


class Lulls:
    """How long the hub has nothing to do at a time. Whoever asks next waits for the end of a step
    ahead. So none is taken where lulls are short, nor shortly before one should end."""

    def __init__(self) -> None:
        self._lengths: deque[float] = deque(maxlen=LULLS)
        self._step_s = Mean()
        self._since: float | None = None

    @property
    def _usual_s(self) -> float:
        """What all but one of the last were not shorter than. A mean would be that of a few long
        ones, and the many short ones would be taken for as long."""
        return sorted(self._lengths)[1] if len(self._lengths) > 1 else 0.0

    def ended(self, now: float) -> None:
        """There is work."""
        if self._since is not None:
            self._lengths.append(now - self._since)
        self._since = None

    def enough(self, now: float) -> bool:
        """There is none: is it time for a step ahead?"""
        if self._since is None:
            self._since = now
        passed_s, usual_s, least_s = (
            now - self._since,
            self._usual_s,
            LULL_STEPS * self._step_s.value,
        )
        if usual_s >= least_s and passed_s <= usual_s - self._step_s.value:
            return True
        return passed_s >= max(least_s, 2 * usual_s)

    def stepped(self, seconds: float) -> None:
        """A step ahead took so long."""
        self._step_s.add(seconds)
