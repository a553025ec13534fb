"""What a step costs by its tokens: its shape, measured at start, and its time of late."""

from __future__ import annotations

import itertools
import math
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from starsd.engine.interface import Row, Runner
from starsd.process.mean import Mean

log = structlog.get_logger()

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a core, ready and waiting for one, and how often."""
SHORTEST_S = 1e-6
"""Of a step: two clocks that do not agree to the microsecond are read."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512)
LONGEST = 5.0
"""A step so many times as long as one of a token is bound by arithmetic: larger ones are longer in
proportion."""
PASSES, ENOUGH_S = 3, 1.0
"""The quickest counts: whatever else starts on this machine only slows steps. After so many seconds
no other pass begins."""
DECAY = 0.98
"""Weight of a step's time against that of the step after it."""
ORIGIN = 2.0
"""A step of nothing takes no time: that counts as much as so many steps."""


class StepShape:
    """Seconds of a step by its tokens: the largest convex function that is nowhere above what was
    measured by size, and never falls, so that a token more never costs less than the one before it.
    Flat where only one size is known."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        """Of a size at least."""
        points = _convex(sorted(seconds.items()))
        self._sizes = [size for size, _ in points]
        self._seconds = [seconds for _, seconds in points]
        self._slopes = [_slope(a, b) for a, b in itertools.pairwise(points)] or [0.0]

    def __call__(self, tokens: float) -> float:
        more = max(tokens, self._sizes[0])
        place = bisect_right(self._sizes, more, hi=len(self._slopes)) - 1
        return self._seconds[place] + self._slopes[place] * (more - self._sizes[place])


Point = tuple[float, float]


def _convex(points: Iterable[Point]) -> list[Point]:
    """The lower hull of points in ascending order, which never falls."""
    hull: list[Point] = []
    for point in points:
        while hull and (point[1] <= hull[-1][1] or _bends_down(hull, point)):
            hull.pop()
        hull.append(point)
    return hull


def _bends_down(hull: list[Point], point: Point) -> bool:
    return len(hull) > 1 and _slope(hull[-1], point) <= _slope(hull[-2], hull[-1])


def _slope(a: Point, b: Point) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def measured(runner: Runner, sizes: Sequence[int] = SIZES) -> StepShape:
    """Of one sequence's steps, all of whose tokens are verified. The first is not counted: it reads
    weights from the disk. Raises EngineError."""
    least: dict[int, float] = {}
    runner.forward([Row(slot=0, tokens=[0], start=0)])
    began = time.monotonic()
    for _ in range(PASSES):
        for size, took_s in _timed(runner, sizes):
            least[size] = min(took_s, least.get(size, math.inf))
        if time.monotonic() > began + ENOUGH_S:
            break
    runner.release(0)
    log.info("steps measured", ms={size: round(1000 * took, 1) for size, took in least.items()})
    return StepShape(least)


def _timed(runner: Runner, sizes: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Steps and their seconds, until the longer ones tell no more."""
    first_s = math.inf
    for size in sizes:
        if size > runner.max_length:
            return
        began = _running_s()
        runner.forward([Row(slot=0, tokens=[0] * size, start=0, want=size)])
        took_s = max(SHORTEST_S, _running_s() - began)
        yield size, took_s
        first_s = min(first_s, took_s)
        if took_s > LONGEST * first_s:
            return


def _running_s() -> float:
    """A clock that stands still while others have this thread's core, as at a start on few cores
    they do: Linux says how long that was."""
    try:
        delayed_ns = int(SCHEDULED.read_text().split()[1])
    except OSError:
        delayed_ns = 0
    return time.monotonic() - delayed_ns / 1e9


class StepTime:
    """Seconds of a decode step of late: a straight line over what the shape says of its tokens,
    fitted to decayed history."""

    def __init__(self, shape: StepShape) -> None:
        self._shape = shape
        one = shape(1)
        self._sums = [1.0, one, one, one * one, one * one]
        self._beside = Mean()

    def note(self, tokens: int, seconds: float, *, beside: bool = False) -> None:
        """``beside``: a hub drafted for us meanwhile, perhaps from the same memory."""
        if beside:
            self._beside.add(seconds / self(tokens))
            return
        alone = self._shape(tokens)
        terms = (1.0, alone, seconds, alone * alone, alone * seconds)
        self._sums = [DECAY * old + new for old, new in zip(self._sums, terms, strict=True)]

    @property
    def beside(self) -> float:
        """How many times as long a step takes while a hub drafts for us."""
        return max(1.0, self._beside.value)

    def __call__(self, tokens: float) -> float:
        count, x, y, xx, xy = self._sums
        count += ORIGIN
        slope = max(0.0, (count * xy - x * y) / (count * xx - x * x))
        line = y / count + slope * (self._shape(tokens) - x / count)
        return max(line, 0.1 * y / count)
