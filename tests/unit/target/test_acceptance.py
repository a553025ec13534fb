"""What a target remembers of guesses that came true."""

from __future__ import annotations

import pytest

from services.target.acceptance import CHAIN, FIRST_BELIEF, Acceptance, Record, surviving
from services.target.guess import Guess

TREE = Guess([6, 9, 7, 8, 5], [-1, -1, 0, 0, 3], allowed=5)
"""6 -> (7, 8 -> 5), 9: the best path is 6, 7."""


def learned(rounds: int, levels: int, accepted: int) -> Acceptance:
    acceptance = Acceptance(4)
    for _ in range(rounds):
        acceptance.note(levels, accepted)
    return acceptance


def test_nothing_seen_is_hoped_for() -> None:
    assert Acceptance(3).rates() == pytest.approx([FIRST_BELIEF] * 3)
    first, second = Acceptance(2).rates([0.4, 0.2])
    assert 0.4 < first < 0.5
    assert second == pytest.approx(0.2)


def test_a_sequence_that_was_tried_is_known_for_what_it_is() -> None:
    """Nothing is hoped for where nobody is ever right."""
    believed = [0.5] * 4
    hopes = [learned(tries, levels=1, accepted=0).rates(believed)[0] for tries in (0, 4, 40)]
    assert hopes == sorted(hopes, reverse=True)
    assert hopes[0] > 0.5
    assert hopes[-1] < 0.1
    assert Acceptance(1).rates([0.0]) == [0.0]


def test_rates_follow_what_is_seen() -> None:
    rates = learned(200, levels=3, accepted=2).rates()
    assert rates[0] > 0.9
    assert rates[1] > 0.9
    assert rates[2] < 0.3


def test_position_that_is_not_asked_for_any_more_is_hoped_for_like_the_one_before() -> None:
    acceptance = learned(100, levels=2, accepted=0)
    for _ in range(300):
        acceptance.note(1, 1)
    first, second, *_ = acceptance.rates()
    assert first > 0.9
    assert second > 0.85


def test_chances_multiply() -> None:
    assert surviving([0.5, 0.5, 0.2]) == pytest.approx([0.5, 0.25, 0.05])
    assert surviving([]) == []


@pytest.mark.parametrize(
    ("path", "spine"), [([], 0), ([0], 1), ([1], 0), ([0, 2], 2), ([0, 3], 1), ([0, 3, 4], 1)]
)
def test_tree_tells_what_its_best_path_alone_would_have_given(path: list[int], spine: int) -> None:
    assert TREE.spine(path) == spine


def test_round_of_a_tree_teaches_every_smaller_shape() -> None:
    """Path 6, 8, 5 is right: the tree of 5 gives 3, that of 3 (6, 9, 7) gives 1, the chain 1."""
    record = Record(3, (CHAIN, 3, 5))
    for _ in range(300):
        record.note(TREE, [0, 3, 4])
    found = {nodes: sum(rate > 0.5 for rate in record.rates(nodes)[:2]) for nodes in (CHAIN, 3, 5)}
    assert found == {CHAIN: 1, 3: 1, 5: 2}


def test_round_of_a_chain_teaches_nothing_of_trees() -> None:
    record = Record(3, (CHAIN, 5))
    before = record.rates(5)
    record.note(Guess([1, 2]), [])
    assert record.rates(5) == before
    assert record.rates(CHAIN)[0] < FIRST_BELIEF


def test_sequence_starts_from_what_the_target_believes() -> None:
    believed, own = Record(2, (CHAIN,)), Record(2, (CHAIN,))
    for _ in range(200):
        believed.note(Guess([1, 2]), [])
    first, second = own.rates(CHAIN, believed.rates(CHAIN))
    assert 0 < first - believed.rates(CHAIN)[0] < 0.1
    assert second == pytest.approx(believed.rates(CHAIN)[1])
    for _ in range(200):
        own.note(Guess([1, 2]), [0, 1])
    assert min(own.rates(CHAIN, believed.rates(CHAIN))) > 0.7
