from __future__ import annotations

import pytest

from starsd.bench.engine import throughput
from starsd.bench.engine.setup import CONTEXT, SEQUENCES
from starsd.bench.engine.throughput import BLOCK, HF, OurBatch
from tests.unit.bench_engine.support import Clock, CostlyRunner, timer_of


class SlowBatch:
    def __init__(self, clock: Clock, step_s: float) -> None:
        self._clock = clock
        self._step_s = step_s

    def decode(self, steps: int) -> None:
        self._clock.now += steps * self._step_s


def test_rates_and_ratios() -> None:
    clock = Clock()
    runner = CostlyRunner(clock, lambda rows: 0.25)
    found = throughput.measure({"bfloat16": runner}, SlowBatch(clock, 1.0), timer_of(clock))
    assert found.tokens_per_s == pytest.approx({"bfloat16": 256, HF: 64})
    assert found.over_hf == pytest.approx({"bfloat16": 4})
    assert found.met is None  # on one core


@pytest.mark.parametrize(
    ("ratio", "threads", "met"), [(2.0, 2, True), (1.99, 2, False), (2.0, 1, None)]
)
def test_the_bar_is_for_two_cores(ratio: float, threads: int, met: bool | None) -> None:
    found = throughput.throughput({"bfloat16": 1.0, HF: ratio}, threads)
    assert found.met is met


def test_without_the_bars_precision() -> None:
    assert throughput.throughput({"int8": 1.0, HF: 2.0}, 2).met is None


def test_decoding_feeds_back_what_was_chosen() -> None:
    runner = CostlyRunner(Clock())
    batch = OurBatch(runner)
    runner.batches.clear()
    batch.decode(BLOCK)
    batch.decode(BLOCK)
    assert {len(rows) for rows in runner.batches} == {SEQUENCES}
    starts = [rows[0].start for rows in runner.batches]
    assert starts == 2 * list(range(CONTEXT, CONTEXT + BLOCK))
    assert [rows[7].tokens for rows in runner.batches[:3]] == [[5], [3], [3]]
