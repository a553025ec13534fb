"""Timing several things in turn, so that whatever else the machine does hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Key = tuple[str, ...]


class Timer:
    """Medians of ``repeats`` times. ``raw`` keeps every one, in seconds, by subject and case.

    Of one thread it takes the processor's time, which others on its core don't touch; of more,
    real time.
    """

    def __init__(self, threads: int, repeats: int) -> None:
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        self.kind = "processor" if threads == 1 else "real"
        self.threads = threads
        self._repeats = repeats
        self.raw: dict[str, dict[str, list[float]]] = {}

    def medians(self, subject: str, cases: Mapping[Key, Callable[[], object]]) -> dict[Key, float]:
        """Seconds of each case. What each does first is not counted."""
        for case in cases.values():
            case()
        times: dict[Key, list[float]] = {key: [] for key in cases}
        for _ in range(self._repeats):
            for key, case in cases.items():
                begin = self._clock()
                case()
                times[key].append(self._clock() - begin)
        kept = self.raw.setdefault(subject, {})
        kept |= {", ".join(key): values for key, values in times.items()}
        return {key: statistics.median(values) for key, values in times.items()}
