"""A runner whose forwards take as long as a test says, and the clock that shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from starsd.bench.engine.setup import Setup
from starsd.bench.engine.timing import Timer
from starsd.engine.interface import KV_BLOCK, Features, Logits, Row, SlotState

VOCAB = 8
SETUP = Setup(
    model="m",
    precisions=("bfloat16", "int8"),
    cores=(0,),
    only=("steps",),
    contexts=(64, 128),
    tokens=50,
    repeats=3,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timer_of(clock: Clock, repeats: int = 3, threads: int = 1) -> Timer:
    timer = Timer(threads, repeats)
    timer._clock = clock
    return timer


class CostlyRunner:
    """Any row may start anywhere; token 3 always wins. ``batches`` are the rows of each forward."""

    vocab_size = VOCAB
    fingerprint = revision = "costly"
    state = SlotState.ROLLS_BACK

    def __init__(
        self,
        clock: Clock,
        cost: Callable[[Sequence[Row]], float] = lambda rows: 0.0,
        slots: int = 64,
        max_length: int = 320,
    ) -> None:
        self._clock = clock
        self._cost = cost
        self.slots = slots
        self.max_length = max_length
        self.kv_blocks = slots * max_length // KV_BLOCK
        self.cache_bytes = 1000 * self.kv_blocks * KV_BLOCK
        self.batches: list[list[Row]] = []

    def parts(self) -> dict[str, float]:
        return {}

    def tap(self, layers: Sequence[int]) -> None: ...

    def features(self) -> list[Features]:
        return []

    def release(self, slot: int, length: int = 0) -> None: ...

    def copy(self, source: int, slot: int, length: int) -> None: ...

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None: ...

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        assert all(row.slot < self.slots for row in rows)
        assert all(row.start + len(row.tokens) <= self.max_length for row in rows)
        self.batches.append(list(rows))
        self._clock.now += self._cost(rows)
        found = [np.zeros((row.want, VOCAB), dtype=np.float32) for row in rows]
        for logits in found:
            logits[:, 3] = 1
        return found


def tokens_of(rows: Sequence[Row]) -> int:
    return sum(len(row.tokens) for row in rows)
