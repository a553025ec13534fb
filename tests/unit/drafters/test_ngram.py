from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starsd.drafters.ngram import _LOOKS, SHORTEST, Ngrams

LONGEST = 6


def naive(tokens: list[int], longest: int) -> list[int]:
    """By comparing every earlier end, the latest first, without any bound on how many."""
    best, most = 0, 0
    for end in range(len(tokens) - 1, 0, -1):
        length = 0
        while length < min(longest, end) and tokens[end - 1 - length] == tokens[-1 - length]:
            length += 1
        if length > most:
            best, most = end, length
    if most < min(SHORTEST, longest):
        return []
    return [tokens[best + step % (len(tokens) - best)] for step in range(most)]


def rare(tokens: list[int]) -> bool:
    """No n-gram occurs so often that not all places are looked at."""
    grams = [tuple(tokens[end - SHORTEST : end]) for end in range(SHORTEST, len(tokens) + 1)]
    return all(grams.count(gram) <= _LOOKS for gram in grams)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60).filter(rare))
def test_the_longest_match_goes_on_as_before(tokens: list[int]) -> None:
    assert Ngrams(LONGEST).propose(tokens) == naive(tokens, LONGEST)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60).filter(rare), st.integers(1, 5))
def test_a_growing_text_is_looked_up_as_a_whole_one(tokens: list[int], step: int) -> None:
    growing = Ngrams(LONGEST)
    for end in range(1, len(tokens) + 1, step):
        assert growing.propose(tokens[:end]) == naive(tokens[:end], LONGEST)


def test_as_much_is_proposed_as_matched() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert Ngrams(8).propose([*text, 0, 3, 4, 5]) == [6, 7, 8]
    assert Ngrams(8).propose([*text, 0, 2, 3, 4, 5]) == [6, 7, 8, 9]
    assert Ngrams(8).propose([*text, 0, 4, 5]) == [6, 7]
    assert Ngrams(8).propose([*text, 0, 5]) == []


def test_a_loop_goes_on() -> None:
    assert Ngrams(8).propose([9, *[1, 2, 3] * 4]) == [1, 2, 3, 1, 2, 3, 1, 2]


def test_of_equal_matches_the_latest() -> None:
    assert Ngrams(4).propose([1, 2, 3, 7, 7, 7, 1, 2, 3, 8, 8, 1, 2, 3])[:1] == [8]


def test_at_least_so_many_must_match() -> None:
    text = [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]
    assert Ngrams(8).propose(text, least=4) == [5, 6, 0, 1]
    assert Ngrams(8).propose(text, least=5) == []


def test_a_miss_asks_for_more_until_a_hit() -> None:
    text = [1, 2, 3, 4, 5, 0, 1, 2]
    ngrams = Ngrams(8)
    assert ngrams.propose(text) == [3, 4]
    ngrams.learn(0)
    assert ngrams.propose(text) == []
    assert ngrams.propose([*text, 3]) == [4, 5, 0]
    ngrams.learn(2)
    assert ngrams.propose([*text, 3, 9, 4, 5]) == [0, 1]


def test_however_many_misses_the_longest_match_is_proposed() -> None:
    ngrams = Ngrams(4)
    for _ in range(9):
        ngrams.learn(0)
    assert len(ngrams.propose([1, 2, 3, 4, 5, 1, 2, 3, 4])) == 4


def test_one_token_at_most() -> None:
    assert Ngrams(1).propose([5, 6, 7, 5]) == [6]


def test_the_index_is_bounded_by_the_text() -> None:
    tokens = [index % 7 for index in range(500)]
    ngrams = Ngrams(8)
    for end in range(1, 501):
        ngrams.propose(tokens[:end])
    assert len(ngrams._before) == 500
    assert len(ngrams._latest) == 7
