from __future__ import annotations

import random
from dataclasses import replace

import pytest

from starsd.plan.acceptance import Drawn, Outcomes, Walked, constant
from starsd.plan.analytic import figures
from starsd.plan.costs import Costs, straight
from starsd.plan.simulation import Simulated, simulate
from starsd.plan.star import Mode, Star
from tests.unit.plan.support import COSTS, FLAT

RATE = constant(0.6)


def drawn(number: int) -> Outcomes:
    return Drawn(RATE, number)


def run(star: Star, costs: Costs, horizon_s: float = 60.0, jitter: float = 0.0) -> Simulated:
    luck = random.Random(1)

    def verify_s(rows: int) -> float:
        return costs.verify(rows) * luck.uniform(1 - jitter, 1 + jitter)

    return simulate(star, costs, drawn, horizon_s, 3.0, verify_s)


@pytest.mark.parametrize("mode", Mode)
def test_one_target_is_the_formula(mode: Mode) -> None:
    star = Star(mode, 1, 5 if mode is not Mode.PLAIN else 0)
    found, expected = run(star, COSTS), figures(star, COSTS, RATE)
    if mode is not Mode.RUN_AHEAD:  # whose formula is an estimate
        assert found.round_s == pytest.approx(expected.round_s)
    assert found.throughput == pytest.approx(expected.throughput, rel=0.04)


@pytest.mark.parametrize("targets", [1, 2, 3, 4, 6, 8, 16])
def test_a_fifo_hub_is_the_papers_formula_at_every_number(targets: int) -> None:
    star = Star(Mode.FIFO, targets, 5)
    found, expected = run(star, FLAT), figures(star, FLAT, RATE)
    assert found.round_s == pytest.approx(expected.round_s, rel=0.01)
    assert found.busy == pytest.approx(expected.busy, abs=0.01)
    assert found.throughput == pytest.approx(expected.throughput, rel=0.05)


@pytest.mark.parametrize("targets", [2, 4, 8, 16])
def test_a_batched_hub_is_near_its_formula(targets: int) -> None:
    star = Star(Mode.BATCHED, targets, 5)
    found, expected = run(star, COSTS, jitter=0.1), figures(star, COSTS, RATE)
    assert found.throughput == pytest.approx(expected.throughput, rel=0.06)


def test_targets_in_step_share_all_their_batches() -> None:
    """Both sequences of a target ask at once, so each step serves both."""
    found = run(Star(Mode.BATCHED, 1, 5, sequences=2), COSTS)
    alone_s = COSTS.service_s(5, 2) + COSTS.return_s(5, 2)
    assert found.round_s == pytest.approx(alone_s)
    assert found.wait_s == pytest.approx(COSTS.service_s(5, 2) + COSTS.network_s, rel=0.02)


def test_run_ahead_hits_where_all_was_accepted() -> None:
    sure = constant(1.0)
    star = Star(Mode.RUN_AHEAD, 1, 4)
    found = simulate(star, FLAT, lambda number: Drawn(sure, number), 30.0, 3.0)
    # 50 ms of verifying are enough for 5 steps of 4 ms
    assert found.hits == pytest.approx(1, abs=0.01)
    assert found.wait_s == pytest.approx(FLAT.network_s, rel=0.02)
    never = simulate(star, FLAT, lambda number: Drawn(constant(0.0), number), 30.0, 3.0)
    assert never.hits == 0
    assert never.round_s == pytest.approx(FLAT.service_s(4) + FLAT.return_s(4), rel=0.05)


def test_run_ahead_reaches_as_far_as_there_is_time() -> None:
    """In 36 ms beside 4 ms a step, eight tokens, lest the target wait for the end of one more: the
    one that it adds itself, and seven of ten."""
    costs = replace(FLAT, verify=straight(0.0359, 0.0), network_s=0.0)
    star = Star(Mode.RUN_AHEAD, 1, 10)
    found = simulate(star, costs, lambda number: Drawn(constant(1.0), number), 30.0, 3.0)
    assert found.hits == 0
    assert found.wait_s == pytest.approx(3 * 0.004, rel=0.02)


def test_run_ahead_leaves_short_lulls_alone() -> None:
    costs = replace(FLAT, verify=straight(0.03, 0.0), network_s=0.0)
    ahead, without = (
        simulate(Star(mode, 1, 4), costs, lambda one: Drawn(constant(1.0), one), 30.0, 3.0)
        for mode in (Mode.RUN_AHEAD, Mode.BATCHED)
    )
    assert ahead.hits == 0
    assert ahead.wait_s == pytest.approx(without.wait_s, rel=0.02)


def test_answers_end_and_begin_anew() -> None:
    costs = replace(FLAT, request_s=0.5)
    ranks = [[4, 0, 0, 0, 0], [4, 1, 1]]
    star = Star(Mode.FIFO, 1, 2)
    found = simulate(star, costs, lambda _: Walked(ranks), 100.0)
    # 5 tokens: a plain step, then 2 + 1 tokens and the last one without a proposal; 3 tokens:
    # a plain step, one behind a proposal of one token, and the last one
    answers_s = 2 * (0.5 + 0.05) + 2 * 0.05
    service_s = costs.service_s(2) + costs.service_s(1)
    rounds_s = service_s + 2 * costs.return_s(1)
    assert found.throughput == pytest.approx(8 / (answers_s + rounds_s), rel=0.03)
    assert found.tokens_per_round == pytest.approx((3 + 1 + 1 + 1) / 4, rel=0.03)


def test_messages_of_jobs_occupy_the_hub() -> None:
    costs = replace(FLAT, hub_job_s=0.02)
    star = Star(Mode.FIFO, 8, 5)
    found = run(star, costs)
    assert found.throughput == pytest.approx(RATE.tokens(5) / 0.04, rel=0.05)
    assert found.busy == pytest.approx(0.5, abs=0.02)  # the model itself


def test_two_hubs_carry_twice_as_many() -> None:
    one = run(Star(Mode.FIFO, 8, 5), FLAT)
    two = run(Star(Mode.FIFO, 16, 5, hubs=2), FLAT)
    assert two.throughput == pytest.approx(2 * one.throughput, rel=0.05)
    assert two.busy == pytest.approx(1, abs=0.01)
