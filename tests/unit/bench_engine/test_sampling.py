from __future__ import annotations

import numpy as np
import pytest

from starsd.bench.engine import sampling
from starsd.engine.interface import Logits
from starsd.protocol.sampling import SamplingParams
from tests.unit.bench_engine.support import Clock, CostlyRunner, timer_of


def test_microseconds_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cost = Clock(), {0.0: 0.001, 1.0: 0.003}

    def sample(row: Logits, params: SamplingParams, *_: object) -> int:
        clock.now += cost[params.temperature] * (2 if params.top_k else 1)
        return 0

    monkeypatch.setattr(sampling, "sample", sample)
    found = sampling.measure(np.zeros((4, 8), np.float32), timer_of(clock))
    assert found == pytest.approx(
        {"greedy": 1000, "top-k 50": 6000, "top-p 0.95": 3000, "unfiltered": 3000}
    )


def test_ways() -> None:
    assert sampling.WAYS["greedy"].greedy
    assert (sampling.WAYS["top-k 50"].top_k, sampling.WAYS["top-p 0.95"].top_p) == (50, 0.95)
    assert sampling.WAYS["unfiltered"] == SamplingParams(seed=1, temperature=1.0)


@pytest.mark.parametrize(("length", "rows"), [(40, 16), (3, 3)])
def test_logits_of_the_end_of_a_text(length: int, rows: int) -> None:
    runner = CostlyRunner(Clock())
    assert len(sampling.logits_of(runner, list(range(length)))) == rows
