"""Seeds of several answers to one request."""

from __future__ import annotations

import pytest

from starsd.protocol.sampling import choice_seed

GOLDEN = [14705007510351019561, 13226464481981948304]
SEEDS = (0, 1, 7, 2**63, 2**64 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_choice_has_the_requests_seed(seed: int) -> None:
    assert choice_seed(seed, 0) == seed


def test_choices_of_any_requests_are_apart() -> None:
    seeds = [choice_seed(seed, choice) for seed in SEEDS for choice in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_bits_look_random() -> None:
    bits = [bit for i in range(1, 400) for bit in f"{choice_seed(7, i):064b}"]
    assert bits.count("1") / len(bits) == pytest.approx(0.5, abs=0.02)


def test_golden_values() -> None:
    """Whoever resumes a choice elsewhere must get the same."""
    assert [choice_seed(7, choice) for choice in (1, 2)] == GOLDEN
    assert choice_seed(8, 1) not in GOLDEN
