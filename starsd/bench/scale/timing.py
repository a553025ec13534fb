"""What steps of draft and target take by their size, in this process on one core: processor time,
which others on that core do not touch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from starsd.bench.draft.costs import middles
from starsd.bench.draft.replay import Place
from starsd.bench.draft.texts import Cache
from starsd.bench.scale.models import DEEPEST, Models
from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Row
from starsd.plan.costs import Curve, rising

BATCHES = (1, 2, 4, 8, 16)
ROWS = (1, 2, 4, 6, 9)
"""Of one sequence: a proposal and the token before it."""
MANY_ROWS = 6
"""Of each of several."""
OUTLIER = 3.0
"""Times the median: that was the machine, not the model."""


@dataclass(frozen=True)
class Steps:
    """Medians, and all times of the usual verification."""

    draft_first: Curve
    draft_next: Curve
    verify: Curve
    verify_s: tuple[float, ...]

    @property
    def verify_factors(self) -> tuple[float, ...]:
        """Over their median, outliers left out."""
        median = statistics.median(self.verify_s)
        return tuple(one / median for one in self.verify_s if one <= OUTLIER * median)


def steps(models: Models, repeats: int) -> Steps:
    """Each ``repeats`` times: those of the draft in turn and those of the target, for each has a
    core's cache to itself in a star. Raises ConfigError: no answer is long enough."""
    caches: list[Cache] = [models.target, models.drafter]
    places = middles(models.texts, caches, DEEPEST, max(BATCHES))
    batches = [size for size in BATCHES if size <= len(places)]
    shapes = [(1, rows) for rows in ROWS] + [(size, MANY_ROWS) for size in batches[1:]]
    _prefill(models, places)
    drafting = [Drafting(models, places[:size]) for size in batches]
    verifying: dict[tuple[int, int], list[float]] = {shape: [] for shape in shapes}
    for one in drafting * (repeats + 1):
        one.round(DEEPEST)
    for _ in range(repeats + 1):
        for (size, rows), times in verifying.items():
            times.append(_verify(models, places[:size], rows))
    for times in verifying.values():
        del times[0]  # the first time pays for what later ones find done
    return Steps(
        draft_first=rising([(len(one.places), one.medians.first) for one in drafting]),
        draft_next=rising([(len(one.places), one.medians.later) for one in drafting]),
        verify=rising([(k * n, statistics.median(times)) for (k, n), times in verifying.items()]),
        verify_s=tuple(verifying[1, MANY_ROWS]),
    )


class Medians(NamedTuple):
    first: float
    later: float


class Drafting:
    """Rounds of a batch, at the same places again and again."""

    def __init__(self, models: Models, places: Sequence[Place]) -> None:
        self._models, self.places = models, places
        self._sequences = [models.sequence(slot, place.text) for slot, place in enumerate(places)]
        self._first: list[float] = []
        self._later: list[float] = []

    def round(self, depth: int) -> None:
        """The first one also reads the texts, and does not count."""
        for sequence, place in zip(self._sequences, self.places, strict=True):
            self._models.extend(sequence, place.text, place.length, depth)
        first, *later = _timed_steps(self._models, self._sequences)
        self._first.append(first)
        self._later += later

    @property
    def medians(self) -> Medians:
        first = statistics.median(self._first[1:])
        return Medians(first, statistics.median(self._later) if self._later else first)


def _timed_steps(models: Models, sequences: Sequence[DraftSequence]) -> Iterator[float]:
    """While all of them still draft."""
    while True:
        begin = time.thread_time()
        models.drafter.step(list(sequences))
        yield time.thread_time() - begin
        busy = [one for one in sequences if not one.idle]
        if len(busy) < len(sequences):
            break
    while busy := [one for one in sequences if not one.idle]:
        models.drafter.step(busy)


def _prefill(models: Models, places: Sequence[Place]) -> None:
    for slot, place in enumerate(places):
        models.target.forward([Row(slot, place.known[:-1], 0, want=0)])


def _verify(models: Models, places: Sequence[Place], rows: int) -> float:
    batch = [
        Row(slot, [place.known[-1]] * rows, place.length - 1, want=rows)
        for slot, place in enumerate(places)
    ]
    begin = time.thread_time()
    models.target.forward(batch)
    return time.thread_time() - begin
