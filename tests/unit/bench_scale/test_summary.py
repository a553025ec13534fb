"""Results of points that were made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starsd.bench.record import as_line
from starsd.bench.scale.claims import claims
from starsd.bench.scale.curves import Found
from starsd.bench.scale.fairness import jain, p95
from starsd.bench.scale.gaps import Gap
from starsd.bench.scale.load import Span
from starsd.bench.scale.plots import draw
from starsd.bench.scale.point import Measured
from starsd.bench.scale.real import AHEAD, PLAIN, STAR, TWO_CORES, WAITING, Leg, Real
from starsd.bench.scale.result import Result
from starsd.bench.scale.simulated import Predicted
from starsd.bench.scale.summary import summarise
from starsd.bench.scale.tables import lines, tables
from starsd.plan.acceptance import Acceptance
from starsd.plan.simulation import Simulated
from starsd.plan.star import Figures, Mode
from tests.unit.bench.answers import MACHINE
from tests.unit.bench_scale.support import COSTS, measured

ACCEPTANCE = Acceptance((0.5, 0.25, 0.125, 0.0625, 0.03125))


def star(mode: Mode, targets: int, round_ms: float, **hub: Any) -> Measured:
    return measured(mode, (1,) * targets, round_ms=round_ms, **hub)


def leg(
    variant: str, delay_ms: float, wait_s: float, tokens_per_s: float, taken: float = 0.0
) -> Leg:
    parts = {"draft_s": 0.5, "queue_s": 0.1, "network_s": 0.2, "verify_s": 2.0, "rounds": 100.0}
    counted = {**parts, "wait_s": wait_s, "foreseen_taken": taken}
    return Leg(variant, delay_ms, tokens_per_s, 200, 4.0, 100, 100, counted, {})


REAL = Real(
    legs=[
        leg(PLAIN, 0, 0.0, 50.0),
        leg(TWO_CORES, 0, 0.0, 80.0),
        leg(STAR, 0, 0.9, 110.0),
        leg(WAITING, 0, 1.0, 100.0),
        leg(AHEAD, 0, 0.4, 120.0, taken=60.0),
        leg(WAITING, 10, 2.0, 70.0),
        leg(AHEAD, 10, 1.1, 80.0, taken=30.0),
    ],
    bytes_per_round=9000.0,
    redis_us_per_round=30.0,
    memory_mb={"hub loop": 100.0},
    machine={},
)
MEASURED = [
    star(Mode.PLAIN, 1, 50.0),
    star(Mode.PLAIN, 4, 50.0),
    star(Mode.PLAIN, 16, 50.0),
    star(Mode.FIFO, 1, 80.0, busy_s=3.0, idle_s=6.9, other_s=0.1),
    star(Mode.FIFO, 4, 80.0, busy_s=9.8, idle_s=0.1, other_s=0.1),
    star(Mode.FIFO, 16, 320.0, busy_s=9.7, idle_s=0.0, other_s=0.3),
    star(Mode.BATCHED, 1, 80.0, other_s=0.01),
    star(Mode.BATCHED, 4, 82.0, other_s=0.02),
    star(Mode.BATCHED, 16, 100.0, other_s=0.2, busy_s=9.8, idle_s=0.0),
    star(Mode.RUN_AHEAD, 16, 101.0, other_s=0.1),
]


def found(points: Sequence[Measured] = MEASURED, **changes: Any) -> Found:
    given: dict[str, Any] = {
        "measured": points,
        "predicted": [],
        "colocated": {4: Figures(70.0, 0.1, 2.0, 0.3)},
        "acceptance": ACCEPTANCE,
        "ranks": [[8, 0, 0, 3, 0, 0, 3, 0, 3, 0, 3, 0]],
        "costs": COSTS,
        "full_predicted": 4,
        "real": REAL,
        "real_error": 0.05,
        "gaps": [Gap(0, 1.0, 0.1, 1.3), Gap(100, 2.0, 0.5, 4.0)],
    }
    return Found(**{**given, **changes})


def result(points: Sequence[Measured] = MEASURED, **changes: Any) -> Result:
    machine = {**MACHINE, "cores_allowed": 2}
    return summarise(found(points, **changes), {"quick": False}, machine)


def test_the_hub() -> None:
    got = result()
    assert got.unforced_idle == pytest.approx(0.03)
    assert got.fifo_idle_saturated == pytest.approx(0.03)  # only 16 is twice N_full and more
    assert got.batched_over_fifo_saturated == pytest.approx(3.2)
    assert got.runahead_cost_saturated == pytest.approx(1 - 100 / 101)
    assert (got.full_predicted, got.full_measured) == (4, 4)
    assert got.s_over_v == pytest.approx(0.010 / 0.021)


def test_the_real_tier() -> None:
    got = result()
    assert got.runahead_wait_removed == pytest.approx(0.45)  # the least, with a delay of 10 ms
    assert got.runahead_hits == pytest.approx(0.3)  # there, too
    assert (got.star_over_plain, got.star_over_plain_two_cores) == (2.2, 1.375)
    assert got.s_over_v_real == 0.25
    assert got.real[2].draft_ms == 5.0
    assert got.memory_mb == {"hub loop": 100.0}


def test_bars_say_what_is_met_and_what_was_not_measured() -> None:
    bars = {bar.name: bar for bar in result().bars}
    assert bars["batched_over_fifo_saturated"].met is True
    assert bars["runahead_wait_removed"].met is False
    assert bars["jain"].met is None
    assert bars["star_over_plain"].s_over_v == 0.25
    assert bars["unforced_idle"].s_over_v == pytest.approx(0.010 / 0.021)


def test_nothing_measured_is_nothing_claimed() -> None:
    got = result([], real=None, real_error=None, gaps=[], colocated={}, full_predicted=None)
    assert {bar.met for bar in got.bars} == {None}
    assert list(claims(got)) == []
    assert as_line(got)


def test_depth_regret_is_by_the_texts_that_the_adaptive_depth_came_through() -> None:
    """Tokens 1 to 7 take two rounds of depth 5, 3 and 3; four of depth 1, 2 and 1 and 2 and 1."""
    assert result().depth_regret is None
    shallow = measured(sequences=(1,), depth=1, round_ms=60.0)
    adaptive = measured(sequences=(1,), depth=8, note="auto", round_ms=90.0)
    adaptive = replace(adaptive, tokens_per_round=3.0, spans=[Span(0, 1, 4), Span(0, 4, 7)])
    got = result([*MEASURED, shallow, adaptive])
    assert got.depth_regret == pytest.approx(1 - (3 / 90) / (3 / 80))  # depth 5 beats it
    worse = [one for one in MEASURED if one.point.mode is Mode.PLAIN]
    got = result([*worse, shallow, adaptive])
    assert got.depth_regret == pytest.approx(1 - (3 / 90) / (6 / 4 / 60))  # and depth 1 does not


def test_errors_of_predictions() -> None:
    point = MEASURED[7].point
    figures = Figures(0.0, 0.090, 2.0, 0.5)
    simulated = Simulated(0.0, 0.078, 2.0, 0.5, hits=0.0, wait_s=0.0)
    got = result(predicted=[Predicted(point, simulated, figures)])
    assert got.model_error == pytest.approx(1 - 78 / 82)
    assert got.formula_error == pytest.approx(90 / 82 - 1)
    (row,) = (row for row in got.rows if row.simulated is not None)
    assert (row.mode, row.targets) == ("batched", 4)


def test_jain_index() -> None:
    assert jain([3.0, 3.0, 3.0]) == 1
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25


def test_percentile() -> None:
    assert p95([float(value) for value in range(100)]) == 95
    assert (p95([]), p95([7.0])) == (0, 7)


def test_fairness_beside_a_flood() -> None:
    flood = measured(sequences=(1, 1, 1, 1, 16), note="flood", busy_s=4.0, steps=400.0)
    uneven = replace(
        flood, gaps_ms=[[90.0] * 20, [90.0] * 20, [90.0] * 20, [180.0] * 20, [200.0] * 20]
    )
    got = result([*MEASURED, uneven])
    assert got.jain == pytest.approx(3.5**2 / (4 * 3.25))
    assert got.quiet_extra_steps == pytest.approx((180 - 82) / 10)
    assert [(one.target, one.sequences) for one in got.shares][-1] == (4, 16)
    assert got.shares[-1].rounds_per_s == pytest.approx(80)


def test_bytes_of_rounds_without_those_of_the_registry() -> None:
    busy = star(Mode.BATCHED, 16, 100.0)
    busy.server["total_net_input_bytes"] = 2.5e6
    points = [one for one in MEASURED if one.point != busy.point]
    rounds = busy.target["rounds"]
    assert result([*points, busy]).bytes_per_round["emulated"] == pytest.approx(2e6 / rounds)


def test_claims_of_the_paper() -> None:
    assert list(claims(result())) == [
        "a one-at-a-time hub saturates at N_full: shown (x1.00 from 4 to 16 targets)",
        "at N_full the star still beats its targets alone: shown (x1.23 of 4 plain targets)",
        "steady drafting takes less time a token than bursts, and varies less: shown (1.00 ms, "
        "p99 1.30, against 2.00, p99 4.00, after gaps of 100 ms)",
    ]
    slow = [star(Mode.FIFO, 2, 120.0), *MEASURED]
    first, *_ = claims(result(slow))
    assert first.startswith("throughput grows about linearly below N_full: NOT shown here (67% of")


def test_tables_have_all_numbers() -> None:
    flood = measured(sequences=(1, 1, 1, 1, 16), note="flood")
    titles = [str(table.title) for table in tables(result([*MEASURED, flood]))]
    assert [title.partition(",")[0] for title in titles] == [
        "Bars",
        "Emulated tier",
        "Emulated tier",
        "Emulated tier",
        "Emulated tier",
        "Real tier",
        "Real draft",
        "Costs and memory",
    ]
    told = list(lines(result()))
    assert "every replayed text was the recorded one" in told
    wrong = replace(MEASURED[0], mismatched=2)
    assert "2 PIECES OF TEXT WERE NOT THE RECORDED ONES" in lines(result([wrong]))


def test_plots_of_what_there_is(tmp_path: Path) -> None:
    names = {path.name for path in draw(result(), tmp_path)}
    assert names == {"throughput.png", "per-target.png", "hub-idle.png", "draft-gaps.png"}
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")
    empty = result([], gaps=[], colocated={})
    assert draw(empty, tmp_path / "none") == []
