"""What steps cost: the shape that was measured, and the line of late over it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.target import cost
from services.target.cost import LONGEST, PASSES, SIZES, StepShape, StepTime, measured
from starsd.engine.interface import Logits, Row
from starsd.settings.target import TargetSettings
from tests.scripted import HashModel, ScriptedRunner
from tests.unit.target.recording import Clock

SECONDS = st.floats(0.001, 1.0)


def test_a_shape_is_what_was_measured_where_that_is_convex() -> None:
    shape = StepShape({1: 0.01, 6: 0.01, 8: 0.012, 16: 0.024})
    assert [shape(tokens) for tokens in (1, 3, 6, 7, 8, 12, 16, 32)] == pytest.approx(
        [0.01, 0.01, 0.01, 0.011, 0.012, 0.018, 0.024, 0.048]
    )


def test_a_size_slower_than_larger_ones_is_passed_over() -> None:
    shape = StepShape({1: 0.011, 4: 0.012, 6: 0.01, 8: 0.02, 16: 0.025})
    assert [shape(tokens) for tokens in (1, 4, 6)] == pytest.approx([0.01] * 3)
    assert shape(8) == pytest.approx(0.013)


def test_one_size_tells_nothing_of_others() -> None:
    shape = StepShape({1: 0.01})
    assert (shape(1), shape(100)) == (0.01, 0.01)


@given(st.dictionaries(st.integers(1, 64), SECONDS, min_size=1))
def test_a_token_more_never_costs_less_than_the_one_before(seconds: dict[int, float]) -> None:
    shape = StepShape(seconds)
    costs = [shape(tokens) for tokens in range(1, 80)]
    prices = [more - less for less, more in itertools.pairwise(costs)]
    assert prices[0] >= -1e-9
    assert all(more >= less - 1e-9 for less, more in itertools.pairwise(prices))
    assert all(shape(tokens) <= took + 1e-9 for tokens, took in seconds.items())


class Dear(ScriptedRunner):
    """Each token takes ``token_s``, and in the first pass twice that; the first step, which is not
    among the ``sizes``, a thousand times."""

    def __init__(self, clock: Clock, token_s: float) -> None:
        super().__init__(HashModel(TargetSettings(max_sequences=1)))
        self.clock, self.token_s = clock, token_s
        self.sizes: list[int] = []

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        size = len(rows[0].tokens)
        if self.forwards:
            self.clock.now += size * self.token_s * (1 if size in self.sizes else 2)
            self.sizes.append(size)
        else:
            self.clock.now += 1000 * self.token_s
        return super().forward(rows)


@pytest.fixture
def dear(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Dear]:
    monkeypatch.setattr("services.target.cost.time.monotonic", clock)
    monkeypatch.setattr(cost, "SCHEDULED", Path("/no/such/file"))
    return lambda token_s: Dear(clock, token_s)


def test_each_size_is_measured_at_its_quickest(dear: Callable[[float], Dear]) -> None:
    runner = dear(0.001)
    shape = measured(runner)
    assert [shape(tokens) for tokens in (1, 6, 100)] == pytest.approx([0.001, 0.006, 0.1])
    assert runner.sizes.count(1) == PASSES
    assert not runner.held[0]


def test_a_step_is_no_longer_because_others_have_its_core(
    dear: Callable[[float], Dear], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, scheduled = dear(0.001), tmp_path / "schedstat"
    monkeypatch.setattr(cost, "SCHEDULED", scheduled)
    forward, waited = runner.forward, itertools.accumulate(itertools.count(3))

    def interrupted(rows: Sequence[Row]) -> list[Logits]:
        runner.clock.now += (now := next(waited)) / 1000 - told()
        scheduled.write_text(f"123 {now * 1_000_000} 45")
        return forward(rows)

    def told() -> float:
        return int(scheduled.read_text().split()[1]) / 1e9

    scheduled.write_text("123 0 45")
    runner.forward = interrupted  # type: ignore[method-assign]
    assert measured(runner)(6) == pytest.approx(0.006)


def test_no_step_takes_no_time_whatever_clocks_say(
    dear: Callable[[float], Dear], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, read = dear(0.001), itertools.count()
    monkeypatch.setattr(cost, "_running_s", lambda: -next(read))
    shape = measured(runner)
    assert shape(1) > 0
    assert StepTime(shape)(1) > 0


def test_no_step_is_measured_that_tells_no_more(dear: Callable[[float], Dear]) -> None:
    runner = dear(0.001)
    measured(runner)
    assert max(runner.sizes) == min(size for size in SIZES if size > LONGEST)


def test_a_slow_model_is_measured_once(dear: Callable[[float], Dear]) -> None:
    runner = dear(1.0)
    assert measured(runner)(1) == pytest.approx(2.0)
    assert runner.sizes.count(1) == 1


def test_time_of_late_is_the_shape_stretched() -> None:
    step = StepTime(StepShape({1: 0.01, 6: 0.01, 16: 0.02}))
    assert [step(tokens) for tokens in (1, 6, 16)] == pytest.approx([0.01, 0.01, 0.02])
    for _ in range(200):
        step.note(1, 0.015)
    assert [step(tokens) for tokens in (1, 6, 16)] == pytest.approx([0.015, 0.015, 0.03], rel=0.01)


def test_where_sizes_cost_otherwise_than_measured_they_tell() -> None:
    """Batches of many sequences read as many caches."""
    step = StepTime(StepShape({1: 0.01, 16: 0.02}))
    for _ in range(100):
        for tokens in (16, 32, 64):
            step.note(tokens, 0.01 + 0.001 * tokens)
    assert step(48) == pytest.approx(0.058, rel=0.02)
    assert step(64) - step(63) == pytest.approx(0.001, rel=0.1)


def test_a_step_beside_a_hub_at_work_is_no_measure_of_others() -> None:
    step = StepTime(StepShape({1: 0.02}))
    assert step.beside == 1.0
    for _ in range(50):
        step.note(1, 0.02)
        step.note(1, 0.024, beside=True)
    assert step(1) == pytest.approx(0.02)
    assert step.beside == pytest.approx(1.2)
