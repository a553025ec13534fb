from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.target.guess import NOTHING, Guess, Source

#   5 - 6 - 7
#     - 8
#   9 - 6
TREE = Guess([5, 6, 9, 8, 6, 7], [-1, 0, -1, 0, 2, 1])


def grown(seed: int, count: int) -> Guess:
    """Any lawful tree."""
    choose = random.Random(seed)
    nodes: list[tuple[int, int]] = []
    while len(nodes) < count:
        pair = (choose.randrange(-1, len(nodes)), choose.randrange(6))
        if pair not in nodes:
            nodes.append(pair)
    guess = Guess.tree([token for _, token in nodes], [parent for parent, _ in nodes])
    assert guess is not None
    return guess


guesses = st.builds(grown, st.integers(0, 10**6), st.integers(0, 15))


def paths(guess: Guess) -> set[tuple[int, ...]]:
    """The tokens down to each node."""
    above = guess.parents or range(-1, len(guess) - 1)
    found: list[tuple[int, ...]] = []
    for token, parent in zip(guess.tokens, above, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [
        ([1, 2], [-1]),
        ([1, 2], [-1, 0, 1]),
        ([1, 2], [1, -1]),
        ([1, 2], [0, 0]),
        ([1, 2], [-2, 0]),
        ([1, 2], [-1, 2**40]),
        ([1, 1], [-1, -1]),
        ([1, 2, 2], [-1, 0, 0]),
    ],
)
def test_what_is_no_tree(tokens: list[int], parents: list[int]) -> None:
    assert Guess.tree(tokens, parents) is None


def test_equal_tokens_may_have_different_parents() -> None:
    assert Guess.tree(TREE.tokens, list(TREE.parents or [])) == TREE


def test_a_tree_without_branches_is_a_chain() -> None:
    assert Guess.tree([4, 4, 4], [-1, 0, 1]) == Guess([4, 4, 4])
    assert Guess.tree([], []) == NOTHING


def test_levels_count_nodes() -> None:
    assert TREE.levels == [2, 3, 1]
    assert Guess([1, 2, 3]).levels == [1, 1, 1]
    assert NOTHING.levels == []


def test_the_path_of_what_was_sampled() -> None:
    assert TREE.path([5, 8, 0]) == [0, 3]
    assert TREE.path([9, 6, 7]) == [2, 4]
    assert TREE.path([6, 7]) == []
    assert Guess([5, 6, 7]).path([5, 6, 1]) == [0, 1]


def test_leaves() -> None:
    assert [TREE.is_leaf(node) for node in range(6)] == [False, False, False, True, True, True]
    assert [Guess([5, 6]).is_leaf(node) for node in range(2)] == [False, True]


def test_after_what_came_true() -> None:
    assert TREE.after([5]) == Guess([6, 8, 7], [-1, -1, 0])
    assert TREE.after([9]) == Guess([6])
    assert TREE.after([5, 8]) == NOTHING
    assert TREE.after([6]) == NOTHING
    assert Guess([5, 6, 7]).after([5, 6]) == Guess([7])
    assert Guess([5, 6]).after([5, 7]) == NOTHING


def test_late_proposal_might_have_had_the_levels_that_are_left() -> None:
    assert Guess([5, 6, 7], asked=6).after([5, 6]).asked == 4


@given(guesses, st.integers(-1, 16))
def test_any_beginning_is_a_tree(guess: Guess, count: int) -> None:
    cut = guess.cut(count)
    assert len(cut) == max(0, min(count, len(guess)))
    assert paths(cut) <= paths(guess)


@given(guesses, st.integers(-1, 6))
def test_within_a_depth_are_all_that_are_no_deeper(guess: Guess, depth: int) -> None:
    assert paths(guess.within(depth)) == {path for path in paths(guess) if len(path) <= depth}


@given(guesses, st.lists(st.integers(0, 5), max_size=3))
def test_after_is_what_continues(guess: Guess, emitted: list[int]) -> None:
    head = tuple(emitted)
    expected = {path[len(head) :] for path in paths(guess) if path[: len(head)] == head}
    assert paths(guess.after(emitted)) == expected - {()}


@given(guesses, st.integers(0, 6))
def test_who_said_it_stays_known(guess: Guess, count: int) -> None:
    local = Guess(guess.tokens, guess.parents, Source.NGRAM)
    assert (not local.cut(count)) or local.cut(count).source is Source.NGRAM
    assert (not local.within(count)) or local.within(count).source is Source.NGRAM


def test_lawful_is_every_path_to_its_first_illegal_token() -> None:
    def legal(path: Sequence[int]) -> int:
        return next((at for at, token in enumerate(path) if token > 9), len(path))

    assert Guess([1, 2, 10, 3]).lawful(legal) == Guess([1, 2])
    assert Guess([10]).lawful(legal) == NOTHING
    tree = Guess([1, 10, 2, 3, 11], [-1, -1, 0, 1, 2])
    assert tree.lawful(legal) == Guess([1, 2])
    assert Guess([1, 2, 3], [-1, -1, 1]).lawful(legal) == Guess([1, 2, 3], [-1, -1, 1])
