"""What a hub learns of its speed: the batch limit, what is worth it, how deep there is time for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.draft.pace import (
    PROBE,
    RETRY,
    SMALLEST,
    TRIES,
    Pace,
    StepCost,
    Usefulness,
)

MOST = 512


def learnt(seconds: Callable[[int], float], steps: int = 200) -> StepCost:
    """A hub with work for as large a step as it likes."""
    cost = StepCost(MOST)
    for tokens in (1, 16):
        cost.learn(tokens, seconds(tokens))
    for _ in range(steps):
        tokens = cost.limit()
        cost.learn(tokens, seconds(tokens))
    return cost


def flat(tokens: int) -> float:
    return 0.01


def dear(tokens: int) -> float:
    """Every token costs as much, wherever it is computed."""
    return 0.001 * tokens


def knee(tokens: int) -> float:
    """Flat to 64 tokens."""
    return 0.01 * max(1.0, tokens / 64)


@pytest.mark.parametrize(("seconds", "limit"), [(flat, MOST), (dear, SMALLEST), (knee, 64)])
def test_the_limit_is_where_a_larger_step_makes_the_hub_no_faster(
    seconds: Callable[[int], float], limit: int
) -> None:
    assert learnt(seconds).best == limit


def test_before_anything_is_known_the_setting_is_the_limit() -> None:
    cost = StepCost(MOST)
    cost.learn(0, 1.0)
    cost.learn(5, 0.0)
    assert cost.limit() == cost.best == MOST


def test_a_node_is_worth_a_step_if_what_follows_it_pays_for_the_step() -> None:
    """A step of 2 ms costs a target of 50 tokens a second a tenth of a token."""
    pace = Pace(max_depth=8)
    assert pace.worth(50) == 0
    pace.answered(0.0, 0.006, 3, expected=1.0)
    assert pace.worth(50) == pytest.approx(0.2)
    assert pace.worth(0) == 0
    assert pace.worth(10_000) == 1


def test_the_setting_bounds_it() -> None:
    cost = StepCost(40)
    for tokens in (16, 32, 40):
        cost.learn(tokens, flat(tokens))
    assert cost.limit() == 40


def test_a_larger_step_is_tried_now_and_then() -> None:
    cost = learnt(dear)
    assert {cost.limit() for _ in range(PROBE)} == {SMALLEST, 2 * SMALLEST}


def test_what_changed_is_found_out() -> None:
    cost = learnt(dear)
    for _ in range(60 * PROBE):
        tokens = cost.limit()
        cost.learn(tokens, flat(tokens))
    assert cost.best > SMALLEST


# -- rounds --------------------------------------------------------------------------------------


def paced(round_s: float = 0.03, steps: int = 4, step_s: float = 0.0015) -> Pace:
    """A hub whose drafts should get two tokens right."""
    pace = Pace(max_depth=8)
    for _ in range(50):
        pace.asked(round_s)
        pace.answered(0.0, steps * step_s, steps, 2.0)
    return pace


def test_a_guess_is_worth_what_it_saves() -> None:
    """A round of 24 ms rather than 30 is worth as much with 1.4 tokens as the longer one with 2."""
    assert not paced().worth_it(1.35)
    assert paced().worth_it(1.45)
    assert not paced(steps=1).worth_it(1.45), "there is less to save"


def test_before_anything_is_known_a_guess_is_worth_it() -> None:
    assert Pace(max_depth=8).worth_it(0.1)


def test_depth_is_what_there_is_time_for() -> None:
    pace = paced()
    assert [pace.depth(ttl_s) for ttl_s in (10, 0.044, 0.015, 0.0)] == [8, 8, 5, 1]


def test_a_backlog_makes_it_less_until_it_is_gone() -> None:
    pace = paced()
    for _ in range(50):
        pace.answered(0.016, 0.006, 4, 2.0)
    assert pace.depth(0.044) == 4
    for _ in range(50):
        pace.answered(0.0, 0.006, 4, 2.0)
    assert pace.depth(0.044) == 8


# -- usefulness ----------------------------------------------------------------------------------


def test_what_is_of_no_use_is_seldom_tried_again() -> None:
    useful = Usefulness()
    for _ in range(TRIES):
        assert useful.worth_it()
        useful.met(False)
    assert [useful.worth_it() for _ in range(2 * RETRY)].count(True) == 2
    useful.met(True)
    assert useful.worth_it()


def test_of_some_use_is_enough() -> None:
    useful = Usefulness()
    for number in range(200):
        useful.met(number % 8 == 0)
        assert useful.worth_it()
