"""What batch-invariant mode costs where torch computes. Compiled code is invariant as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starsd.bench.engine.runners import one_sequence, sequences, touch
from starsd.bench.engine.setup import CONTEXT, INVARIANCE
from starsd.bench.engine.timing import Timer
from starsd.engine.interface import Row, Runner

SLOTS = 16
NORMAL, INVARIANT = "normal", "invariant"
DTYPES = ("float32", "bfloat16")
CASES: dict[str, list[Row]] = {
    "1 of one": one_sequence(1, CONTEXT),
    "16 of one": one_sequence(16, CONTEXT),
    f"1 of {SLOTS}": sequences(SLOTS, CONTEXT),
}


@dataclass(frozen=True)
class Invariance:
    """``over_normal``: time of a step in batch-invariant over that in normal mode."""

    dtype: str
    normal_ms: dict[str, float]
    over_normal: dict[str, float]


def measure(dtype: str, normal: Runner, invariant: Runner, timer: Timer) -> Invariance:
    for runner in (normal, invariant):
        touch(runner, range(SLOTS), CONTEXT + 1)
    cases: dict[tuple[str, ...], Callable[[], object]] = {
        (dtype, name, mode): partial(runner.forward, rows)
        for name, rows in CASES.items()
        for mode, runner in ((NORMAL, normal), (INVARIANT, invariant))
    }
    found = timer.medians(INVARIANCE, cases)
    return Invariance(
        dtype=dtype,
        normal_ms={name: 1000 * found[dtype, name, NORMAL] for name in CASES},
        over_normal={
            name: found[dtype, name, INVARIANT] / found[dtype, name, NORMAL] for name in CASES
        },
    )
