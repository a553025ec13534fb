"""Which tiers run, and with which costs, by measurements that were made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starsd.bench.scale import emulated, real, run
from starsd.bench.scale.gaps import Gap, Gaps
from starsd.bench.scale.point import Measured, Point
from starsd.bench.scale.setup import DEPTH
from starsd.bench.scale.world import World
from starsd.plan.star import Mode
from tests.unit.bench_scale.support import SETUP, make_world, measured
from tests.unit.bench_scale.test_summary import REAL

POINTS = [
    measured(Mode.PLAIN, (1,), round_ms=100.0),
    measured(Mode.BATCHED, (1,), round_ms=160.0),  # of 100 to verify and 55 for a trip
    measured(Mode.FIFO, (1,) * 4, round_ms=200.0),
]


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is measured, in order."""
    seen: list[str] = []

    def record(source: Any, say: Any, repeats: int = 0) -> World:
        seen.append(f"record {source.quantize}")
        return make_world()

    def play(setup: Any, worlds: Any, store: Any, say: Any) -> list[Measured]:
        seen.append("emulated" + (" two models" if "models" in worlds else ""))
        trips = ({"draft_s": 0.055 * one.target["rounds"]} for one in POINTS)
        return [replace(a, target={**a.target, **b}) for a, b in zip(POINTS, trips, strict=True)]

    def measure(*_: Any) -> Any:
        seen.append("real")
        return REAL

    def gaps(self: Any) -> Gaps:
        seen.append("gaps")
        return Gaps([Gap(0, 1.0, 0.0, 1.0)])

    monkeypatch.setattr(run, "record", record)
    monkeypatch.setattr(emulated, "run", play)
    monkeypatch.setattr(real, "measure", measure)
    monkeypatch.setattr(run.Run, "_measure_gaps", gaps)
    return seen


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        (("emulated",), ["record none", "record int4", "emulated two models"]),
        (("real",), ["record none", "real", "gaps"]),
    ],
)
def test_tiers(
    did: list[str], tmp_path: Path, tiers: tuple[str, ...], expected: Sequence[str]
) -> None:
    result = run.measure(replace(SETUP, tiers=tiers), tmp_path, lambda _: None)
    assert did == expected
    assert (result.model_error, result.formula_error) == (None, None)
    assert bool(result.rows) == ("emulated" in tiers)
    assert bool(result.real) == bool(result.gaps) == ("real" in tiers)


def test_the_simulation_is_fed_with_what_one_target_showed(did: list[str], tmp_path: Path) -> None:
    setup = replace(SETUP, tiers=("emulated", "simulated"), quick=True)
    result = run.measure(setup, tmp_path, lambda _: None)
    assert did == ["record none", "emulated"]
    one = next(row for row in result.rows if row.mode == "batched")
    assert one.simulated == pytest.approx(1, abs=0.05)  # ends of answers are drafted less deep
    assert result.full_predicted is not None
    assert {row.targets for row in result.rows if row.formula is not None} == {1, 4}


def test_costs_are_those_of_the_recording_where_no_star_ran(did: list[str], tmp_path: Path) -> None:
    found = run.measure(replace(SETUP, tiers=("real",)), tmp_path, lambda _: None)
    assert found.s_over_v == pytest.approx(1 / 2.9)  # as full at four targets takes
    assert did[0] == "record none"


def test_the_point_that_costs_come_from_is_always_asked_for() -> None:
    points = list(emulated.equal_points(replace(SETUP, targets=(16,))))
    assert Point(Mode.BATCHED, (1,), DEPTH) in points
