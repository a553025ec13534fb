"""Samples have the processed softmax's distribution, and shared noise couples draft to target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.noise import Floats
from starsd.sampling.sampler import propose, sample

Row = npt.NDArray[np.float32]
Sampler = Callable[[Row, SamplingParams, int, Sequence[int]], int]

PROBABILITIES = np.array([0.30, 0.22, 0.15, 0.11, 0.08, 0.06, 0.04, 0.025, 0.01, 0.005])
LOGITS: Row = np.log(PROBABILITIES).astype(np.float32)
PLAIN = SamplingParams(seed=0)
SEEDS = 20_000


def normalised(weights: Floats) -> Floats:
    total: float = weights.sum()
    return weights / total


def p_value(sampler: Sampler, params: SamplingParams, expected: Floats, seeds: int) -> float:
    """Chi-square of one token per seed; a token of probability 0 that is drawn gives 0."""
    drawn = [
        sampler(LOGITS, msgspec.structs.replace(params, seed=seed), 57, ()) for seed in range(seeds)
    ]
    counts = np.bincount(drawn, minlength=len(expected))
    if counts[expected == 0].any():
        return 0.0
    alive = expected > 0
    return float(stats.chisquare(counts[alive], expected[alive] * seeds).pvalue)


def hot(logits: Row, params: SamplingParams, position: int, history: Sequence[int]) -> int:
    """A biased sampler: five parts in a hundred too warm."""
    return sample(logits / np.float32(1.05), params, position, history)


def test_e17_plain_sampling_passes_chi_square_and_a_biased_sampler_fails_it() -> None:
    assert p_value(sample, PLAIN, PROBABILITIES, SEEDS) > 1e-3
    assert p_value(hot, PLAIN, PROBABILITIES, SEEDS) < 1e-3


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(seed=0, top_k=4), 4),
        (SamplingParams(seed=0, top_p=0.75), 4),
        (SamplingParams(seed=0, min_p=0.25), 5),
    ],
)
def test_filtered_sampling_passes_chi_square(params: SamplingParams, kept: int) -> None:
    expected = normalised(np.where(np.arange(10) < kept, PROBABILITIES, 0.0))
    assert p_value(sample, params, expected, SEEDS) > 1e-3
    assert p_value(sample, PLAIN, expected, 2000) < 1e-3


def test_temperature_shapes_the_distribution() -> None:
    expected = normalised(PROBABILITIES ** (1 / 0.6))
    assert p_value(sample, SamplingParams(seed=0, temperature=0.6), expected, 5000) > 1e-3


def acceptance(spread: float, rounds: int = 1500) -> dict[str, float]:
    """Agreement of a draft whose logits are the target's plus noise of this spread."""
    rng = np.random.default_rng(int(spread * 1000))
    shared = unshared = 0
    overlaps = []
    for position in range(rounds):
        target = rng.normal(0, 2.5, 200).astype(np.float32)
        draft = (target + rng.normal(0, spread, 200)).astype(np.float32)
        token = sample(target, PLAIN, position, ())
        shared += propose(draft, PLAIN, position, (), 64) == token
        unshared += propose(draft, SamplingParams(seed=99), position, (), 64) == token
        p, q = (normalised(np.exp(x.astype(np.float64))) for x in (target, draft))
        overlaps.append(np.minimum(p, q).sum())
    bound = np.mean([o / (2 - o) for o in overlaps])
    return {
        "ratio": float(np.mean(overlaps)),
        "bound": float(bound),
        "shared": shared / rounds,
        "unshared": unshared / rounds,
    }


@pytest.mark.parametrize("spread", [0.3, 0.6, 1.0])
def test_shared_noise_accepts_nearly_what_the_ratio_test_would(spread: float) -> None:
    """At most the overlap of the two distributions (the ratio test's rate), at least
    (1 - TV) / (1 + TV) (Daliri et al.) less what lies beyond the 64 best."""
    got = acceptance(spread)
    assert got["bound"] - 0.06 < got["shared"] < got["ratio"] + 0.03, got
    assert got["shared"] > 3 * got["unshared"], got
