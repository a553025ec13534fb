"""How far a draft's word is believed, text by text."""

from __future__ import annotations

import pytest

from starsd.drafters.interface import DraftSequence
from starsd.drafters.trust import Trust
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.compiled import Ranked


def learned(expected: float, came: int, rounds: int = 100) -> Trust:
    trust = Trust()
    for _ in range(rounds):
        trust.note(expected, came)
    return trust


def test_a_draft_is_believed_until_it_was_wrong() -> None:
    assert Trust().value == 1
    assert learned(1.0, 1).value == pytest.approx(1)
    assert learned(2.0, 1).value == pytest.approx(0.5, abs=0.05)
    assert learned(2.0, 1, rounds=1).value > 0.7


def test_what_it_says_of_late_counts_most() -> None:
    trust = learned(2.0, 0)
    for _ in range(200):
        trust.note(1.0, 1)
    assert trust.value > 0.9


TREE = [5, 6, 7], [-1, -1, 0]
"""5 -> 7, 6."""


@pytest.mark.parametrize(
    ("said", "came"),
    [([9], 0), ([6, 9], 1), ([5, 8], 1), ([5, 7, 1], 2), ([5], None), ([], None)],
)
def test_the_text_tells_what_came_true_of_a_proposal(said: list[int], came: int | None) -> None:
    """Nothing as long as it may all have."""
    sequence = DraftSequence(0, SamplingParams(seed=1), 100)
    sequence.extend(0, [1, 2], depth=2, max_nodes=3)
    sequence.drafted, sequence.parents = TREE
    sequence.expected = 1.5
    sequence.extend(1, [2, *said], depth=2, max_nodes=3)
    told = sequence.trust.expected, sequence.trust.came
    assert told == ((0, 0) if came is None else (1.5, came))
    sequence.extend(1, [2, *said, 3], depth=2, max_nodes=3)
    assert sequence.trust.expected <= told[0], "once"


def test_who_was_never_right_is_heard_again_in_time() -> None:
    """Though it was not asked, or proposed nothing that was worth it."""
    sequence = DraftSequence(0, SamplingParams(seed=1), 100)
    sequence.trust = learned(2.0, 0)
    assert sequence.trust.value < 0.1
    for length in range(300):
        sequence.extend(length, [7], depth=0)
    assert sequence.trust.value > 0.9


def test_prices_are_those_of_what_comes_true() -> None:
    """Half of what the draft expects: it must be twice as sure."""
    sequence = DraftSequence(0, SamplingParams(seed=1), 100, prices=[0.2], worth=0.3)
    sequence.extend(0, [1], depth=3, max_nodes=15)
    sequence.trust = learned(2.0, 1, rounds=1000)
    sequence.begin(15, 15, floor=0.05)
    sequence.grow([Ranked([5, 6, 7], [0.65, 0.45, 0.3])])
    assert sequence.tree is not None
    assert sequence.tree.best().tokens == [5, 6]
    assert sequence.tree.frontier == [0]
