from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from starsd.sampling.noise import (
    Words,
    choice_seed,
    exponential_noise,
    exponentials,
    noise_words,
    philox4x32,
)

# Random123's kat_vectors, "philox4x32 10": counter, key, output
KNOWN_ANSWERS = (
    "00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd",
    "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1",
)
ALL = np.arange(49152)


@pytest.mark.parametrize("line", KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(line: str) -> None:
    words = [int(word, 16) for word in line.split()]
    counters = np.array([words[:4]] * 3, dtype=np.uint64).T
    answer = philox4x32(counters, words[4] | words[5] << 32)
    assert answer.tolist() == [words[6:]] * 3


def scalar_philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """The paper's figure, one word at a time."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b % 2**32, (a >> 32) ^ c3 ^ k1, a % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 300_000), max_size=40),
)
def test_a_token_takes_its_word_of_its_counter(seed: int, position: int, tokens: list[int]) -> None:
    expected = [
        scalar_philox((token >> 2, position, 0, 0), (seed % 2**32, seed >> 32))[token & 3]
        for token in tokens
    ]
    assert noise_words(seed, position, np.array(tokens, dtype=np.int64)).tolist() == expected


@settings(max_examples=30)
@given(st.integers(0, 2**64 - 1), st.data())
def test_dense_and_sparse_subsets_agree(seed: int, data: st.DataObject) -> None:
    everything = noise_words(seed, 9, np.arange(1001))
    ids = np.array(data.draw(st.lists(st.integers(0, 1000), max_size=400)), dtype=np.int64)
    assert (noise_words(seed, 9, ids) == everything[ids]).all()


def test_a_seed_wider_than_64_bits_is_not_folded() -> None:
    with pytest.raises(OverflowError):
        noise_words(2**64, 0, ALL[:4])


def test_exponentials_are_positive_and_finite_at_both_ends() -> None:
    ends = exponentials(np.array([0, 2**32 - 1], dtype=np.uint32))
    assert ends[0] == pytest.approx(2.0**-33, rel=1e-9)
    assert ends[1] == pytest.approx(33 * np.log(2.0), rel=1e-6)


def test_noise_is_standard_exponential() -> None:
    noise = exponential_noise(11, 3, ALL)
    assert stats.kstest(noise, "expon").pvalue > 1e-3


def independent(first: Words, second: Words) -> bool:
    """Uncorrelated, and jointly uniform on 16 by 16 cells."""
    cells = np.bincount((first >> 28) * 16 + (second >> 28), minlength=256)
    r = float(np.corrcoef(first.astype(np.float64), second.astype(np.float64))[0, 1])
    return bool(stats.chisquare(cells).pvalue > 1e-4 and abs(r) < 4 / len(first) ** 0.5)


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**32 - 1, 2**63])
def test_adjacent_seeds_and_positions_are_independent(seed: int) -> None:
    here = noise_words(seed, 100, ALL)
    assert independent(here, noise_words(seed + 1, 100, ALL))
    assert independent(here, noise_words(seed ^ 2**32, 100, ALL))
    assert independent(here, noise_words(seed, 101, ALL))
    assert independent(here[:-1], here[1:])
    assert not independent(here, here)


def test_one_token_is_independent_along_positions_and_seeds() -> None:
    token = np.array([7])
    along = np.concatenate([noise_words(5, position, token) for position in range(6001)])
    across = np.concatenate([noise_words(seed, 5, token) for seed in range(6001)])
    for words in (along, across):
        assert independent(words[:-1], words[1:])


def test_choices_have_seeds_of_their_own() -> None:
    assert choice_seed(42, 0) == 42
    seeds = {choice_seed(seed, i) for seed in range(50) for i in range(20)}
    assert len(seeds) == 1000
    assert max(seeds) < 2**64
    # frozen: a resumed request must find the same choices in a later release
    assert choice_seed(42, 1) == 5583431949364501314
