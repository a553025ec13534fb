from __future__ import annotations

import pytest

from starsd.bench.engine import contexts
from tests.unit.bench_engine.support import Clock, CostlyRunner, timer_of


def test_memory_and_time_by_context() -> None:
    clock = Clock()
    runner = CostlyRunner(clock, lambda rows: rows[0].start + 1, slots=1, max_length=128)
    found = contexts.measure("int8", runner, (64, 128, 512), timer_of(clock))
    assert found.step_ms == {"64": 64_000, "128": 128_000}
    assert found.cache_mb == pytest.approx({"64": 0.064, "128": 0.128})
    assert found.left_out == [512]
    assert [rows[0].start for rows in runner.batches[:8]] == list(range(0, 128, 16))


def test_none_fits() -> None:
    clock = Clock()
    runner = CostlyRunner(clock, max_length=32)
    found = contexts.measure("int8", runner, (64,), timer_of(clock))
    assert (found.step_ms, found.left_out) == ({}, [64])
