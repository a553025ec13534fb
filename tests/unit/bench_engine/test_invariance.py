from __future__ import annotations

import pytest

from starsd.bench.engine import invariance
from tests.unit.bench_engine.support import Clock, CostlyRunner, timer_of, tokens_of


def test_invariant_over_normal() -> None:
    clock = Clock()
    normal = CostlyRunner(clock, lambda rows: 0.001 * tokens_of(rows), slots=16)
    invariant = CostlyRunner(clock, lambda rows: 0.020, slots=16)
    found = invariance.measure("float32", normal, invariant, timer_of(clock))
    assert found.dtype == "float32"
    assert found.normal_ms == pytest.approx({"1 of one": 1, "16 of one": 16, "1 of 16": 16})
    assert found.over_normal == pytest.approx({"1 of one": 20, "16 of one": 1.25, "1 of 16": 1.25})
