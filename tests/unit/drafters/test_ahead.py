"""What is foreseen: the tree's growth, its bounds, and the proposals that lie in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from starsd.drafters.ahead import LEAST, ROW, STEPS, Ahead
from starsd.sampling.verification import ROOT

Found = tuple[list[int], list[float]]


def grow(ahead: Ahead, follow: Callable[[tuple[int, ...]], Found], steps: int = STEPS) -> None:
    for _ in range(steps):
        if ahead.frontier:
            ahead.grow([follow(ahead.path(node)) for node in ahead.frontier])


def halves(path: tuple[int, ...]) -> Found:
    """Two candidates everywhere, told apart by their place."""
    return [2 * len(path), 2 * len(path) + 1], [0.6, 0.4]


def test_the_likeliest_is_followed_first() -> None:
    ahead = Ahead(trees=True, exact=False)
    ahead.grow([([1, 2], [0.9, 0.1])])
    assert [ahead.path(node) for node in ahead.frontier] == [(1,), (2,)]
    ahead.grow([([3, 4], [0.9, 0.05]), ([5], [1.0])])
    assert [ahead.path(node) for node in ahead.frontier] == [(1, 3), (2, 5), (1, 4)]


def test_rows_and_steps_are_bounded() -> None:
    ahead = Ahead(trees=True, exact=False)
    steps = 0
    while ahead.frontier:
        _, tokens, parents = ahead.branch()
        assert len(tokens) <= ROW
        assert all(parent < at for at, parent in enumerate(parents))
        ahead.grow([halves(ahead.path(node)) for node in ahead.frontier])
        steps += 1
    assert steps == ahead.steps == STEPS


def test_a_chain_longer_than_a_row_is_where_it_ends() -> None:
    ahead = Ahead(range(ROW), [*range(-1, ROW - 1)], trees=False, exact=True, at_once=True)
    grow(ahead, lambda path: ([len(path)], [1.0]))
    assert not ahead.frontier


def test_the_unlikely_is_not_followed() -> None:
    ahead = Ahead(trees=True, exact=False)
    ahead.grow([([1, 2], [0.99, LEAST / 2])])
    assert [ahead.path(node) for node in ahead.frontier] == [(1,)]
    assert ahead.foresee([2], 4, 15) is None


def test_nothing_found_ends_it() -> None:
    ahead = Ahead(trees=True, exact=False)
    ahead.grow([([], [])])
    assert ahead.frontier == []
    assert ahead.foresee([1], 4, 15) is None


def test_a_seed_is_expanded_at_once_with_the_root() -> None:
    ahead = Ahead([7, 8], [ROOT, 0], trees=False, exact=True, at_once=True)
    assert [ahead.path(node) for node in ahead.frontier] == [(), (7,), (7, 8)]
    ahead.grow([([7, 1], [0.8, 0.2]), ([8, 2], [0.5, 0.5]), ([9, 3], [0.7, 0.3])])
    paths = [ahead.path(node) for node in ahead.frontier]
    assert paths[:3] == [(7, 8, 9), (7, 2), (1,)]
    assert len(paths) == len(set(paths)) == 4


# -- proposals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [[0], [1], [0, 2], [1, 3, 4]])
def test_a_chain_follows_the_likeliest(said: Sequence[int]) -> None:
    ahead = Ahead(trees=False, exact=True)
    grow(ahead, halves)
    foreseen = ahead.foresee(said, 3, 15)
    assert foreseen is not None
    assert foreseen.tokens == [2 * (len(said) + more) for more in range(3)]
    assert (foreseen.parents, foreseen.exact) == ([], True)
    assert foreseen.expected == pytest.approx(0.6 + 0.36 + 0.216)


def test_a_tree_holds_the_likeliest_nodes_below_what_was_said() -> None:
    ahead = Ahead(trees=True, exact=False)
    grow(ahead, halves)
    foreseen = ahead.foresee([0], 2, 4)
    assert foreseen is not None
    assert foreseen.tokens == [2, 3, 4, 5]  # 0.6, 0.4, 0.36, 0.24
    assert foreseen.parents == [ROOT, ROOT, 0, 0]
    assert foreseen.expected == pytest.approx(1.6)
    assert not foreseen.exact


def test_no_more_nodes_than_depth_make_a_chain() -> None:
    ahead = Ahead(trees=True, exact=True)
    grow(ahead, halves)
    foreseen = ahead.foresee([0], 2, 2)
    assert foreseen is not None
    assert (foreseen.tokens, foreseen.parents, foreseen.exact) == ([2, 4], [], True)


@pytest.mark.parametrize("said", [[], [9], [0, 9]])
def test_what_was_not_foreseen(said: Sequence[int]) -> None:
    ahead = Ahead(trees=True, exact=False)
    grow(ahead, halves)
    assert ahead.foresee(said, 4, 15) is None


def test_what_was_foreseen_but_not_what_follows_it() -> None:
    ahead = Ahead(trees=True, exact=False)
    ahead.grow([halves(())])
    assert ahead.foresee([0], 4, 15) is None
