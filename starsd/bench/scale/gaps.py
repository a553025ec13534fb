"""Steady drafting against bursts: what a drafted token takes when the draft rests before each
round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from starsd.bench.draft.costs import middles
from starsd.bench.draft.replay import Place
from starsd.bench.scale.models import Models
from starsd.drafters.interface import DraftSequence

GAPS_MS = (0, 1, 5, 20, 100)
ROUNDS = 40
P99 = 0.99


@dataclass(frozen=True)
class Gap:
    """Milliseconds of a drafted token, in real time."""

    gap_ms: float
    mean_ms: float
    std_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Gaps:
    found: list[Gap]


def measure(models: Models, depth: int, rounds: int = ROUNDS) -> Gaps:
    """One sequence, again and again at one place. Raises ConfigError: no answer is long enough."""
    (place,) = middles(models.texts, [models.drafter], depth, most=1)
    sequence = models.sequence(0, place.text)
    _round(models, sequence, place, depth)  # reads the text
    return Gaps([_gap(models, sequence, place, depth, gap_ms, rounds) for gap_ms in GAPS_MS])


def _gap(
    models: Models,
    sequence: DraftSequence,
    place: Place,
    depth: int,
    gap_ms: float,
    rounds: int,
) -> Gap:
    times: list[float] = []
    for _ in range(rounds):
        time.sleep(gap_ms / 1000)
        times += _round(models, sequence, place, depth)
    return summed(gap_ms, times)


def summed(gap_ms: float, times: Sequence[float]) -> Gap:
    """Of at least one time, in seconds."""
    ordered = sorted(1000 * one for one in times)
    p99 = ordered[min(len(ordered) - 1, int(P99 * len(ordered)))]
    return Gap(gap_ms, statistics.fmean(ordered), statistics.pstdev(ordered), p99)


def _round(models: Models, sequence: DraftSequence, place: Place, depth: int) -> list[float]:
    models.extend(sequence, place.text, place.length, depth)
    times = []
    while not sequence.idle:
        begin = time.perf_counter()
        models.drafter.step([sequence])
        times.append(time.perf_counter() - begin)
    return times
