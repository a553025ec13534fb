"""What a target keeps of its hidden states, slot by slot."""

from __future__ import annotations

import numpy as np
import pytest

from services.target.features import Features, Window
from starsd.engine.interface import Features as Rows
from starsd.engine.interface import Row
from starsd.protocol.pods import Needs
from tests.scripted_head import HIDDEN, TAPS, TappedRunner, features_of, make_target, state_after

NEEDS = Needs(hidden_size=HIDDEN, layers=TAPS)


def rows(first: int, last: int) -> Rows:
    """Row ``i`` says ``i``."""
    return np.arange(first, last, dtype=np.uint16)[:, None]


def held(window: Window) -> list[int]:
    found: list[int] = window.read(window.begin, window.end)[:, 0].tolist()
    return found


@pytest.fixture
def runner() -> TappedRunner:
    return make_target()


@pytest.fixture
def features(runner: TappedRunner) -> Features:
    made = Features(runner, 8)
    assert made.serve(NEEDS, engaged=False) is None
    return made


# -- a slot's window -----------------------------------------------------------------------------


def test_the_newest_positions_stay() -> None:
    features = Features(make_target(), 4)
    for first, last in [(0, 3), (3, 4), (4, 60), (60, 200), (200, 201)]:
        features.keep(0, first, rows(first, last))
        assert held(features._windows[0]) == [*range(max(0, last - 4), last)]
        assert len(features._windows[0]._blocks) == 1


def test_all_stay_where_prefixes_are_kept() -> None:
    features = Features(make_target(), 4, whole=True)
    features.keep(0, 0, rows(0, 90))
    features.keep(0, 90, rows(90, 300))
    assert held(features._windows[0]) == [*range(300)]


def test_what_lies_beyond_counts_no_more() -> None:
    window = Window()
    window.write(3, rows(3, 90))
    window.write(6, rows(6, 7))
    assert held(window) == [3, 4, 5, 6]
    window.cut(5)
    assert held(window) == [3, 4]
    window.cut(8)
    assert held(window) == [3, 4]


@pytest.mark.parametrize("start", [0, 2, 20])
def test_after_a_gap_or_from_the_beginning_it_starts_anew(start: int) -> None:
    window = Window()
    window.write(5, rows(5, 15))
    window.write(start, rows(start, start + 2))
    assert held(window) == [start, start + 1]


@pytest.mark.parametrize("length", [40, 64, 70, 100, 120])
def test_common_beginnings_stay_common_whoever_goes_on(length: int) -> None:
    """Whole blocks are the same memory, and nobody writes to another's."""
    window = Window()
    window.write(10, rows(10, 100))
    other = window.beginning(length)
    shared = min(length, 100)
    assert held(other) == [*range(10, shared)]
    assert (other._blocks[0] is window._blocks[0]) == (shared >= 64)
    other.write(shared, rows(1000, 1080))
    window.write(100, rows(2000, 2010))
    assert held(other) == [*range(10, shared), *range(1000, 1080)]
    assert held(window) == [*range(10, 100), *range(2000, 2010)]
    window.cut(50)
    window.write(50, rows(3000, 3020))
    assert held(other) == [*range(10, shared), *range(1000, 1080)]


# -- of a runner ---------------------------------------------------------------------------------


def test_nothing_is_asked_of_a_runner_that_is_not_tapped(runner: TappedRunner) -> None:
    idle = Features(runner, 8)
    runner.forward([Row(0, [1, 2], 0), Row(1, [3], 0)])
    assert idle.of_forward(2) == [None, None]
    idle.keep(0, 0, None)
    assert not idle._windows


def test_only_committed_positions_are_kept(features: Features, runner: TappedRunner) -> None:
    runner.forward([Row(2, [1, 2, 3, 4, 5], 0, want=3)])
    (seen,) = features.of_forward(1)
    features.keep(2, 0, seen, 3)
    window = features._windows[2]
    assert (window.begin, window.end) == (0, 3)
    assert np.array_equal(window.read(2, 3)[0], features_of(state_after([1, 2, 3])))


def test_a_copy_has_what_is_still_there(features: Features) -> None:
    features.keep(0, 0, rows(0, 12))
    features.copy(0, 1, 10)
    features.copy(0, 2, 4)
    features.copy(3, 4, 4)
    assert held(features._windows[1]) == [4, 5, 6, 7, 8, 9]
    assert set(features._windows) == {0, 1}


def test_a_dropped_slot_holds_nothing(features: Features) -> None:
    features.keep(0, 0, rows(0, 3))
    features.cut(0, 2)
    assert held(features._windows[0]) == [0, 1]
    features.cut(0, 0)
    features.cut(0, 0)
    assert not features._windows


def test_states_that_begin_after_the_cut_are_gone(features: Features) -> None:
    features.keep(0, 0, rows(0, 30))
    features.cut(0, 22)
    assert not features._windows


# -- of hubs' needs ------------------------------------------------------------------------------


def test_the_same_needs_are_met_again(features: Features) -> None:
    features.keep(0, 0, rows(0, 3))
    needs = Needs(hidden_size=HIDDEN, layers=TAPS, revision="another head")
    assert features.serve(needs, engaged=True) is None
    assert features._windows


def test_other_needs_wait_until_nobody_has_the_first(
    features: Features, runner: TappedRunner
) -> None:
    other = Needs(hidden_size=HIDDEN, layers=(2,))
    reason = features.serve(other, engaged=True)
    assert reason == "layers: hub reads (2,), another in use reads (1, 3)"
    features.keep(0, 0, rows(0, 3))
    assert features.serve(other, engaged=False) is None
    assert runner.taps == (2,)
    assert not features._windows


def test_a_runner_that_cannot_is_not_asked_to(runner: TappedRunner) -> None:
    features = Features(runner, 8)
    reason = features.serve(Needs(hidden_size=HIDDEN, layers=(9,)), engaged=False)
    assert reason == "layers: no layer 9; there are 4"
    assert features.of_forward(1) == [None]


def test_states_of_another_size_are_refused_when_seen(runner: TappedRunner) -> None:
    features, needs = Features(runner, 8), Needs(hidden_size=HIDDEN + 1, layers=TAPS)
    assert features.serve(needs, engaged=False) is None
    runner.forward([Row(0, [1], 0)])
    assert features.of_forward(1) == [None]
    reason = features.serve(needs, engaged=False)
    assert reason == f"hidden_size: hub reads {HIDDEN + 1}, which this model's is not"
    assert features.serve(NEEDS, engaged=False) is None
