"""What a step costs by its rows: several of one sequence, or one of each of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from starsd.bench.engine.runners import one_sequence, sequences, touch
from starsd.bench.engine.setup import CONTEXT, SEQUENCES, STEPS
from starsd.bench.engine.timing import Timer
from starsd.engine.interface import Row, Runner

CASES: Mapping[str, list[Row]] = {
    **{f"{rows} of one": one_sequence(rows, CONTEXT) for rows in (1, 5, 16)},
    **{f"1 of {count}": sequences(count, CONTEXT) for count in (16, SEQUENCES)},
}
ONE, VERIFIED = "1 of one", "16 of one"
FLAT_LIMIT = 1.15
FLAT = ("bfloat16", "int8")
"""Precisions whose bar ``FLAT_LIMIT`` is."""


@dataclass(frozen=True)
class Steps:
    """Of a precision, by case; ``over_one`` are ratios to one row. ``flat`` None: no bar."""

    precision: str
    ms: dict[str, float]
    over_one: dict[str, float]
    flat: bool | None


def measure(runners: Mapping[str, Runner], timer: Timer) -> list[Steps]:
    """By precision. Every case of every runner in turn."""
    for runner in runners.values():
        touch(runner, range(SEQUENCES), CONTEXT + 1)
    cases: dict[tuple[str, ...], Callable[[], object]] = {
        (precision, name): partial(runner.forward, rows)
        for name, rows in CASES.items()
        for precision, runner in runners.items()
    }
    found = timer.medians(STEPS, cases)
    return [steps(name, {case: 1000 * found[name, case] for case in CASES}) for name in runners]


def steps(precision: str, ms: dict[str, float]) -> Steps:
    over_one = {case: value / ms[ONE] for case, value in ms.items()}
    flat = over_one[VERIFIED] <= FLAT_LIMIT if precision in FLAT else None
    return Steps(precision, ms, over_one, flat)
