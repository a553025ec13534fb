from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.errors import ConfigError
from starsd.plan.acceptance import Acceptance, Drawn, Outcome, Walked, constant, recorded, rounds


def test_tokens_of_a_round_by_depth() -> None:
    found = Acceptance((0.8, 0.4))
    assert [found.tokens(depth) for depth in (0, 1, 2, 3)] == pytest.approx([1, 1.8, 2.2, 2.4])
    assert found.at(-1) == 1


def test_a_constant_rate_is_geometric() -> None:
    found = constant(0.5)
    assert [found.at(token) for token in range(3)] == [0.5, 0.25, 0.125]
    assert constant(0).tokens(8) == 1


@pytest.mark.parametrize("reached", [(), (1.1,), (0.5, 0.6), (-0.1,)])
def test_no_acceptance(reached: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="falling shares"):
        Acceptance(reached)


@given(st.floats(0, 1), st.integers(0, 20))
def test_more_depth_never_gives_less(rate: float, depth: int) -> None:
    found = constant(rate)
    assert 1 <= found.tokens(depth) <= found.tokens(depth + 1) <= depth + 2


def test_draws_have_the_average_that_the_formula_says() -> None:
    acceptance = Acceptance((0.7, 0.4, 0.3), foreseen=0.25)
    drawn = Drawn(acceptance, seed=1)
    outcomes = [drawn.next(3) for _ in range(20_000)]
    tokens = sum(one.accepted + 1 for one in outcomes) / len(outcomes)
    assert tokens == pytest.approx(acceptance.tokens(3), rel=0.02)
    wrong = [one.foreseen for one in outcomes if one.accepted < 3]
    assert sum(wrong) / len(wrong) == pytest.approx(0.25, abs=0.02)
    whole = [one.foreseen for one in outcomes if one.accepted == 3]
    assert sum(whole) / len(whole) == pytest.approx(0.75 + 0.25 * 0.25, abs=0.03)
    assert sum(one.foreseen for one in outcomes) / len(outcomes) == pytest.approx(
        acceptance.hit(3), abs=0.02
    )
    assert drawn.room() > 1_000_000


def test_a_walk_along_recorded_answers() -> None:
    walked = Walked([[8, 0, 0, 2, 0, 8, 0], [8, 1]])
    assert walked.next(0) == Outcome(0, False)
    assert walked.room() == 5
    assert walked.next(5) == Outcome(2, True)
    assert walked.next(1) == Outcome(1, False)
    assert walked.room() == 0
    assert walked.next(0) == Outcome(0, True, last=True)
    assert walked.next(0) == Outcome(0, False)
    assert walked.next(0) == Outcome(0, True, last=True)
    assert walked.room() == 6  # the first answer again


def test_a_walk_may_begin_at_any_answer() -> None:
    walked = Walked([[8, 0, 0], [8, 1]], first=3)
    assert [walked.next(0), walked.next(4)] == [Outcome(0, False), Outcome(0, True, last=True)]


def test_rounds_that_a_piece_of_an_answer_takes() -> None:
    ranks = [8, 0, 0, 1, 0, 0]
    assert rounds(ranks, 1, 4, depth=5) == 1  # two accepted, and one of the target's own
    assert rounds(ranks, 1, 4, depth=1) == 2
    assert rounds(ranks, 1, 3, depth=5) == pytest.approx(2 / 3)
    assert rounds(ranks, 3, 6, depth=5) == 2  # the last token is the target's own
    assert rounds(ranks, 1, 6, depth=0) == 5


def test_the_average_of_recorded_answers() -> None:
    found = recorded([[8, 0, 0, 1, 0, 0], [8, 8]], deepest=2)
    assert found.reached == (0.75, 0.5)  # rounds may begin at tokens 1 to 4
    assert found.foreseen == 0.5


def test_nothing_is_learnt_of_short_answers() -> None:
    with pytest.raises(ConfigError, match="no answer is longer than 8"):
        recorded([[4, 0, 0]], deepest=8)


def test_all_known_needs_no_other_choice() -> None:
    assert recorded([[4, 0, 0, 0]], deepest=2) == Acceptance((1.0, 1.0), 0.0)
