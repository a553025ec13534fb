from __future__ import annotations

from dataclasses import replace

import pytest

from starsd.bench.scale.calibration import observed
from starsd.bench.scale.point import Point
from starsd.bench.scale.simulated import colocated, predict, predictable
from starsd.plan.acceptance import recorded
from starsd.plan.star import Mode
from tests.unit.bench_scale.support import COSTS, make_world, measured

WORLD = make_world()
MESSAGES = replace(COSTS, network_s=0.001, request_s=0.03)


@pytest.mark.parametrize("mode", [Mode.PLAIN, Mode.FIFO, Mode.BATCHED])
def test_simulation_and_formula_agree(mode: Mode) -> None:
    for targets in (1, 4):
        found = predict(Point(mode, (1,) * targets, 5), WORLD, MESSAGES)
        assert found.simulated.round_s == pytest.approx(found.formula.round_s, rel=0.1)


def test_tokens_are_those_of_the_recorded_answers() -> None:
    found = predict(Point(Mode.BATCHED, (1,) * 4, 5), WORLD, MESSAGES)
    expected = recorded(WORLD.ranks, 8).tokens(5)
    assert found.simulated.tokens_per_round == pytest.approx(expected, rel=0.1)


def test_steps_that_vary_cost_their_mean() -> None:
    slow = make_world(verify_factors=(1.0, 3.0))
    point = Point(Mode.PLAIN, (1,), 0)
    assert predict(point, slow, MESSAGES).formula.round_s == pytest.approx(2 * 0.020)
    assert predict(point, slow, MESSAGES).simulated.round_s == pytest.approx(0.040, rel=0.05)


def test_a_draft_beside_each_target_needs_no_messages() -> None:
    found = colocated(3, 5, WORLD, MESSAGES)
    assert found.round_s == pytest.approx(MESSAGES.service_s(5) + MESSAGES.verify(6))


def test_only_equal_targets_are_predicted() -> None:
    points = [
        Point(Mode.BATCHED, (1, 1), 5),
        Point(Mode.BATCHED, (1, 16), 5),
        Point(Mode.BATCHED, (1, 1), 8, "auto"),
    ]
    assert predictable(points) == points[:1]


def test_what_a_star_of_one_target_shows() -> None:
    """Steps of 2 ms that took 2.5; trips of 16 ms; rounds of 40 with a verification of 21."""
    one = measured(round_ms=40.0, busy_s=1.0, steps=400.0, other_s=0.08, served=80.0)
    trips = {"draft_s": 0.5, "queue_s": 0.1, "network_s": 0.4}  # of 62.5 rounds
    counted = replace(one, target={"rounds": 62.5, "steps": 62.5, **trips})
    found = observed(WORLD, counted)
    assert found.draft_next(1) == pytest.approx(0.0025)
    assert found.hub_job_s == pytest.approx(0.001)
    assert found.network_s == pytest.approx(0.016 - 5 * 0.0025 - 0.001)
    assert found.target_step_s == pytest.approx(0.040 - 0.016 - 0.021)
    assert found.request_s == pytest.approx(0.05 - 0.020)
    assert found.service_s(5) + found.return_s(5) == pytest.approx(0.040)
    late = replace(counted, hub={**one.hub, "other_s": 8.0})  # most of it after replies
    assert observed(WORLD, late).hub_job_s == pytest.approx((0.016 - 5 * 0.0025) / 2)
