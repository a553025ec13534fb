from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.plan.acceptance import constant
from starsd.plan.analytic import figures, full_at
from starsd.plan.costs import Costs, straight
from starsd.plan.star import Mode, Star
from tests.unit.plan.support import COSTS, FLAT

RATE = constant(0.6)
milliseconds = st.floats(0.1, 200).map(lambda ms: ms / 1000)
shares = st.floats(0, 1)


@st.composite
def all_costs(draw: st.DrawFn) -> Costs:
    """Drafts whose steps take less than proportionally longer for a batch."""
    draft = straight(draw(milliseconds), draw(shares))
    return Costs(draft, draft, straight(draw(milliseconds), draw(shares) / 20), draw(milliseconds))


def throughput(mode: Mode, targets: int, costs: Costs, depth: int = 5, hubs: int = 1) -> float:
    return figures(Star(mode, targets, depth, hubs=hubs), costs, RATE).throughput


def test_the_papers_formula() -> None:
    service_s, return_s = FLAT.service_s(5), FLAT.return_s(5)
    assert (service_s, return_s) == pytest.approx((0.02, 0.06))
    assert full_at(FLAT, 5) == 4
    for targets in range(1, 9):
        found = figures(Star(Mode.FIFO, targets, 5), FLAT, RATE)
        idle_s = max(0.0, return_s - (targets - 1) * service_s)
        assert found.round_s == pytest.approx(targets * service_s + idle_s)
        assert found.busy == pytest.approx(targets * service_s / found.round_s)
        assert found.throughput == pytest.approx(targets * RATE.tokens(5) / found.round_s)


@given(all_costs(), st.integers(1, 8))
def test_a_fifo_hub_is_full_from_n_full_on_and_not_before(costs: Costs, depth: int) -> None:
    full = full_at(costs, depth)
    assert figures(Star(Mode.FIFO, full, depth), costs, RATE).busy == pytest.approx(1)
    if full > 2:
        assert figures(Star(Mode.FIFO, full - 2, depth), costs, RATE).busy < 1


@given(all_costs(), st.integers(1, 40), st.integers(1, 8))
def test_more_targets_never_lower_a_fifo_star_nor_raise_their_own(
    costs: Costs, targets: int, depth: int
) -> None:
    fewer, more = (throughput(Mode.FIFO, n, costs, depth) for n in (targets, targets + 1))
    assert more >= fewer * (1 - 1e-9)
    assert more / (targets + 1) <= fewer / targets * (1 + 1e-9)


@given(all_costs(), st.integers(1, 40))
def test_a_batched_round_lies_between_alone_and_all_together(costs: Costs, targets: int) -> None:
    found = figures(Star(Mode.BATCHED, targets, 5), costs, RATE)
    away_s = costs.return_s(5)
    most_s = costs.service_s(5, targets) * 1.1 + away_s
    assert costs.service_s(5) + away_s <= found.round_s * (1 + 1e-9)
    assert found.round_s <= most_s * (1 + 1e-9)
    assert 0 < found.busy <= 1


@given(all_costs())
def test_alone_all_hubs_are_alike_but_for_running_ahead(costs: Costs) -> None:
    fifo, batched, ahead = (
        throughput(mode, 1, costs) for mode in (Mode.FIFO, Mode.BATCHED, Mode.RUN_AHEAD)
    )
    assert batched == pytest.approx(fifo)
    assert ahead >= batched


def test_batching_wins_where_the_hub_is_full() -> None:
    full = full_at(COSTS, 5)
    assert throughput(Mode.BATCHED, 4 * full, COSTS) > 2.5 * throughput(Mode.FIFO, 4 * full, COSTS)


def test_run_ahead_needs_idle_time() -> None:
    gain = [
        throughput(Mode.RUN_AHEAD, targets, COSTS) / throughput(Mode.BATCHED, targets, COSTS)
        for targets in (1, 16)
    ]
    assert gain[0] > 1.002 > gain[1] >= 1


def test_without_a_hub() -> None:
    plain = figures(Star(Mode.PLAIN, 3, 0), COSTS, RATE)
    assert plain.throughput == pytest.approx(3 / 0.050)
    assert plain.busy == 0
    beside = figures(Star(Mode.COLOCATED, 3, 5), COSTS, RATE)
    assert beside.round_s == pytest.approx(COSTS.service_s(5) + COSTS.verify(6))
    assert beside.throughput == pytest.approx(3 * RATE.tokens(5) / beside.round_s)
    assert beside.token_s == pytest.approx(beside.round_s / RATE.tokens(5))


def test_more_hubs_share_the_targets() -> None:
    assert throughput(Mode.FIFO, 16, FLAT, hubs=2) == pytest.approx(
        2 * throughput(Mode.FIFO, 8, FLAT)
    )
    assert Star(Mode.FIFO, 16, 5, hubs=2).accelerators == 18
    assert Star(Mode.PLAIN, 16, 5).accelerators == 16


def test_sequences_of_a_target_queue_for_a_fifo_hub() -> None:
    one = figures(Star(Mode.FIFO, 1, 5, sequences=8), FLAT, RATE)
    assert one.round_s == pytest.approx(8 * FLAT.service_s(5) + FLAT.return_s(5))


def test_messages_make_a_hub_full_sooner() -> None:
    assert full_at(replace(FLAT, hub_job_s=0.02), 5) < full_at(FLAT, 5)
