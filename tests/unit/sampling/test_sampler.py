from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starsd.errors import EngineError
from starsd.protocol.sampling import SamplingParams
from starsd.sampling import sampler
from starsd.sampling.noise import Floats, exponential_noise
from starsd.sampling.processing import Candidates, candidates, relative_weights
from starsd.sampling.sampler import propose, race, sample

Row = npt.NDArray[np.float32]


def logits_of(seed: int, vocab: int = 300, spread: float = 2.5) -> Row:
    rng = np.random.default_rng(seed)
    return rng.normal(0, spread, vocab).astype(np.float32)


params_of = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 1e-30, 1e-4, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
)


def naive(logits: Row, params: SamplingParams, position: int) -> int:
    """The race over all survivors, E / p with p written out."""
    if params.greedy:
        return int(logits.argmax())
    kept = candidates(logits, params, [])
    p = relative_weights(kept.scores)
    with np.errstate(divide="ignore"):  # p underflows at low temperatures
        arrivals = exponential_noise(params.seed, position, kept.ids) / p
    return int(kept.ids[arrivals.argmin()])


@given(params_of, st.integers(0, 2**32 - 1), st.integers(0, 1000))
def test_sample_is_the_argmin_of_the_race(
    params: SamplingParams, position: int, model: int
) -> None:
    logits = logits_of(model)
    assert sample(logits, params, position, []) == naive(logits, params, position)


@settings(max_examples=60)
@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.sampled_from([0.01, 1.0, 4.0, 12.0]))
def test_the_prefilter_changes_nothing(seed: int, position: int, spread: float) -> None:
    logits = logits_of(position, vocab=3000, spread=spread)
    kept = candidates(logits, SamplingParams(seed=seed), [])
    front = sampler._front(kept, seed, position)
    noise = exponential_noise(seed, position, kept.ids)
    assert front is not None
    assert front == kept.ids[(kept.scores - np.log(noise)).argmax()]


def test_the_prefilter_lets_rare_tokens_win() -> None:
    """One token of 80 %, thirty thousand that share the rest."""
    logits = np.zeros(30_001, dtype=np.float32)
    logits[1500] = np.log(120_000.0)
    kept = candidates(logits, SamplingParams(seed=0), [])
    rare = 0
    for seed in range(200):
        full = kept.scores - np.log(exponential_noise(seed, 4, kept.ids))
        assert race(kept, seed, 4) == full.argmax()
        rare += int(full.argmax() != 1500)
    assert 15 < rare < 70


def test_a_race_below_the_floor_runs_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_WIDTH", 0.9)  # now the floor is missed in many races
    logits = np.zeros(600, dtype=np.float32)
    logits[300] = np.log(900.0)  # 60 %: its E is well above its u, where a limit on u misleads
    kept = candidates(logits, SamplingParams(seed=0), [])
    missed = 0
    for seed in range(300):
        missed += sampler._front(kept, seed, 4) is None
        full = kept.scores - np.log(exponential_noise(seed, 4, kept.ids))
        assert race(kept, seed, 4) == full.argmax()
    assert 30 < missed < 270


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 9e-6])
def test_greedy_ties_go_to_the_lower_id(temperature: float) -> None:
    params = SamplingParams(seed=1, temperature=temperature, top_k=3, top_p=0.5)
    assert sample(np.array([1, 7, 3, 7], dtype=np.float32), params, 0, []) == 1


def test_sampled_ties_go_to_the_lower_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def level(seed: int, position: int, ids: npt.NDArray[np.int64]) -> Floats:
        return np.ones(len(ids))

    monkeypatch.setattr(sampler, "exponential_noise", level)
    kept = Candidates(np.array([4, 6, 9]), np.array([0.0, 2.0, 2.0]))
    assert race(kept, 0, 0) == 6


@given(params_of, st.integers(0, 2**32 - 1), st.integers(0, 1000))
def test_the_same_distribution_proposes_what_is_sampled(
    params: SamplingParams, position: int, model: int
) -> None:
    logits = logits_of(model)
    expected = sample(logits, params, position, [])
    assert propose(logits, params, position, [], 0) == expected
    assert propose(logits, params, position, [], 300) == expected


def test_few_candidates_keep_most_of_the_agreement() -> None:
    hits = [0, 0]
    for position in range(300):
        logits = logits_of(position, vocab=2000)
        params = SamplingParams(seed=8)
        wanted = sample(logits, params, position, [])
        hits[0] += propose(logits, params, position, [], 64) == wanted
        hits[1] += propose(logits, params, position, [], 1) == wanted
    mass = np.mean([top_mass(logits_of(position, vocab=2000), 64) for position in range(300)])
    assert abs(hits[0] / 300 - mass) < 0.1
    assert hits[1] < hits[0]


def top_mass(logits: Row, count: int) -> float:
    p = relative_weights(logits.astype(np.float64))
    return float(np.sort(p)[::-1][:count].sum() / p.sum())


def test_proposals_filter_by_the_full_distribution() -> None:
    """The nucleus is computed before the cut to few candidates: the crossing token stays out."""
    logits = np.log(np.array([0.35, 0.25, 0.2, 0.2], dtype=np.float32))
    params = [SamplingParams(seed=seed, top_p=0.5) for seed in range(200)]
    assert {propose(logits, p, 3, [], 3) for p in params} == {0, 1}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_is_an_engine_error(temperature: float) -> None:
    logits = np.array([0.0, np.nan, 1.0], dtype=np.float32)
    with pytest.raises(EngineError, match="NaN"):
        sample(logits, SamplingParams(seed=0, temperature=temperature), 0, [])


def test_a_mask_is_obeyed() -> None:
    allowed = np.zeros(3000, dtype=np.bool_)
    allowed[[17, 2900]] = True
    for temperature in (0.0, 1.0):
        params = SamplingParams(seed=3, temperature=temperature)
        drawn = {sample(logits_of(1, 3000), params, t, [], allowed) for t in range(40)}
        assert drawn <= {17, 2900}


def test_noise_off_by_one_position_changes_the_text() -> None:
    params = SamplingParams(seed=2)
    right = [sample(logits_of(t), params, t, []) for t in range(100)]
    wrong = [sample(logits_of(t), params, t + 1, []) for t in range(100)]
    same = sum(a == b for a, b in zip(right, wrong, strict=True))
    assert same < 40
