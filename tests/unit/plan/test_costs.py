from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.errors import ConfigError
from starsd.plan.costs import Costs, Curve, rising, straight
from tests.unit.plan.support import COSTS


def test_between_below_and_beyond_the_measured_sizes() -> None:
    curve = Curve((2, 4, 8), (1.0, 2.0, 6.0))
    assert [curve(size) for size in (1, 2, 3, 4, 6, 8, 9)] == [1, 1, 1.5, 2, 4, 6, 7]


def test_one_size_holds_for_all() -> None:
    assert {Curve((3,), (0.5,))(size) for size in (1, 3, 99)} == {0.5}


@pytest.mark.parametrize(
    ("sizes", "seconds"), [((), ()), ((1, 2), (1.0,)), ((2, 1), (1.0, 1.0)), ((1,), (-1.0,))]
)
def test_no_curve(sizes: tuple[float, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="a curve of"):
        Curve(sizes, seconds)


def test_noise_never_makes_the_larger_cheaper() -> None:
    assert rising([(4, 2.0), (1, 3.0), (2, 1.0)]) == Curve((1, 2, 4), (1.0, 1.0, 2.0))


@given(
    st.lists(st.tuples(st.integers(1, 99), st.floats(0, 9)), min_size=1, unique_by=lambda p: p[0])
)
def test_more_never_takes_less(points: list[tuple[float, float]]) -> None:
    curve = rising(points)
    times = [curve(size) for size in range(1, 120)]
    assert all(a <= b + 1e-9 for a, b in pairwise(times))


def test_growth_is_a_share_of_the_first() -> None:
    assert straight(0.01, 0.5)(4) == pytest.approx(0.025)


def test_factors_and_offsets() -> None:
    curve = Curve((1, 2), (1.0, 3.0))
    assert curve.times(2).seconds == (2.0, 6.0)
    assert curve.plus(-2).seconds == (0.0, 1.0)


def test_service_and_return() -> None:
    costs = Costs(
        straight(0.005, 0.0), straight(0.002, 1.0), straight(0.05, 0.1), 0.003, 0.001, 0.002
    )
    assert costs.service_s(0) == 0
    assert costs.service_s(1, 4) == pytest.approx(0.005 + 4 * 0.001)
    assert costs.service_s(3, 2) == pytest.approx(0.005 + 2 * 0.004 + 2 * 0.001)
    assert costs.step_s(2) == pytest.approx(0.055 + 0.002)
    assert costs.return_s(1, sequences=2) == pytest.approx(0.003 + 0.05 * 1.3 + 0.002)


def test_even_steps_give_the_same_round() -> None:
    costs = Costs(straight(0.009, 0.0), straight(0.002, 1.0), straight(0.05, 0.0))
    even = costs.even(4)
    assert even.draft_first == even.draft_next
    assert [even.service_s(4, batch) for batch in (1, 2)] == pytest.approx(
        [costs.service_s(4, batch) for batch in (1, 2)]
    )


def test_slower_models_and_the_same_messages() -> None:
    slower = COSTS.slower(3)
    assert slower.service_s(5) == pytest.approx(3 * COSTS.service_s(5))
    assert slower.verify(6) == pytest.approx(3 * COSTS.verify(6))
    assert slower.network_s == COSTS.network_s
