from __future__ import annotations

import pytest

from starsd.bench.engine import steps
from starsd.bench.engine.setup import CONTEXT, SEQUENCES
from tests.unit.bench_engine.support import Clock, CostlyRunner, timer_of, tokens_of


def test_cases_by_precision() -> None:
    clock = Clock()
    flat = CostlyRunner(clock, lambda rows: 0.010 * len(rows))
    steep = CostlyRunner(clock, lambda rows: 0.020 * tokens_of(rows))
    timer = timer_of(clock)
    one, other = steps.measure({"int8": flat, "float32": steep}, timer)
    assert one.ms == pytest.approx(
        {"1 of one": 10, "5 of one": 10, "16 of one": 10, "1 of 16": 160, "1 of 64": 640}
    )
    assert one.over_one["1 of 64"] == pytest.approx(64)
    assert other.over_one["16 of one"] == pytest.approx(16)
    assert (one.precision, one.flat, other.precision, other.flat) == ("int8", True, "float32", None)
    assert len(timer.raw["steps"]) == 10


def test_every_row_is_at_the_context_and_wanted() -> None:
    clock = Clock()
    runner = CostlyRunner(clock, lambda rows: 1.0)
    steps.measure({"int8": runner}, timer_of(clock, repeats=1))
    touching = [rows for rows in runner.batches if not rows[0].want]
    timed = [rows for rows in runner.batches if rows[0].want]
    assert {len(rows) for rows in touching} == {SEQUENCES}
    assert [rows[0].start for rows in touching] == list(range(0, CONTEXT + 1, 16))
    assert {row.start for rows in timed for row in rows} == {CONTEXT}
    assert all(row.want == len(row.tokens) for rows in timed for row in rows)


@pytest.mark.parametrize(
    ("precision", "ratio", "flat"),
    [
        ("bfloat16", 1.15, True),
        ("bfloat16", 1.151, False),
        ("int8", 1.151, False),
        ("int4", 3.0, None),
    ],
)
def test_the_bar(precision: str, ratio: float, flat: bool | None) -> None:
    found = steps.steps(precision, {"1 of one": 10.0, "16 of one": 10 * ratio})
    assert (found.precision, found.flat) == (precision, flat)
    assert found.over_one == pytest.approx({"1 of one": 1, "16 of one": ratio})
