"""How old an entry is, by the clock of the server that stamped it."""

from __future__ import annotations

import time
from collections.abc import Callable

from starsd.bus.streams import entry_ms

JUMP_S = 1.0


class ServerClock:
    """Server time between two readings of TIME, carried on by our own monotonic clock.

    A reading more than JUMP_S off what was expected means that one of the clocks was set: entries
    stamped before that moment have an unknown age, so theirs counts from the moment itself.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._floor = 0.0

    def observe(self, server_s: float, sent_at: float) -> None:
        """``server_s`` is TIME's answer, ``sent_at`` our clock when it was asked."""
        offset = server_s - sent_at
        if self._offset is not None and abs(offset - self._offset) > JUMP_S:
            self._floor = server_s
        self._offset = offset

    def age_s(self, entry_id: str) -> float:
        """Seconds since the entry was added; never negative, 0 before the first reading."""
        if self._offset is None:
            return 0.0
        # An id counts whole milliseconds; the entry came half of one later, on the average.
        added = max((entry_ms(entry_id) + 0.5) / 1000, self._floor)
        return max(0.0, self._clock() + self._offset - added)
