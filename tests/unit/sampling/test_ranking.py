from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.errors import EngineError
from starsd.protocol.sampling import Penalties, SamplingParams
from starsd.sampling.noise import exponential_noise
from starsd.sampling.ranking import rank, rank_all
from starsd.sampling.sampler import propose

Row = npt.NDArray[np.float32]


def logits_of(seed: int, vocab: int = 300, spread: float = 2.5) -> Row:
    rng = np.random.default_rng(seed)
    return rng.normal(0, spread, vocab).astype(np.float32)


params_of = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 1e-4, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    prompt_len=st.just(2),
    penalties=st.sampled_from([None, Penalties(0.5, 0.5, 1.3)]),
    bias=st.sampled_from([None, {3: 9.0, 7: -4.0}]),
)
considered_of = st.sampled_from([0, 1, 3, 64, 300])


@given(params_of, st.integers(0, 2**32 - 1), st.integers(0, 1000), considered_of, st.booleans())
def test_the_first_is_what_would_be_proposed(
    params: SamplingParams, position: int, model: int, considered: int, tied: bool
) -> None:
    logits = logits_of(model)
    if tied:
        logits = np.round(logits)
    ranked = rank(logits, params, position, [3, 5, 7, 5], considered, 4)
    assert ranked.tokens[0] == propose(logits, params, position, [3, 5, 7, 5], considered)


@given(params_of, st.integers(0, 1000), st.integers(1, 9))
def test_the_second_is_what_would_be_proposed_without_the_first(
    params: SamplingParams, model: int, count: int
) -> None:
    """With as many left to run; filters that look at the first are left out."""
    params = SamplingParams(seed=params.seed, temperature=params.temperature)
    logits = logits_of(model)
    ranked = rank(logits, params, 9, [], 64, count)
    left, considered = logits.copy(), 64
    for token in ranked.tokens:
        assert token == propose(left, params, 9, [], considered)
        left[token], considered = -np.inf, considered - 1


def test_confidence_is_the_softmax_of_the_perturbed_logits() -> None:
    params = SamplingParams(seed=11, temperature=0.5)
    logits = np.array([1.0, 3.0, 2.0, 2.5, -9.0], dtype=np.float32)
    kept = np.array([1, 2, 3])
    perturbed = logits[kept] - 0.5 * np.log(exponential_noise(11, 4, kept))
    shares = np.exp(perturbed) / np.exp(perturbed).sum()
    ranked = rank(logits, params, 4, [], 3, 2)
    order = np.argsort(-shares)[:2]
    assert ranked.tokens == kept[order].tolist()
    assert ranked.confidences == pytest.approx(shares[order])


def test_greedy_confidence_is_the_softmax_of_the_logits() -> None:
    logits = np.array([1.0, 3.0, 2.0, 2.0, -9.0], dtype=np.float32)
    ranked = rank(logits, SamplingParams(seed=0, temperature=0.0, top_k=1), 4, [], 4, 3)
    assert ranked.tokens == [1, 2, 3]
    shares = np.exp([3.0, 2.0, 2.0]) / np.exp([1.0, 3.0, 2.0, 2.0]).sum()
    assert ranked.confidences == pytest.approx(shares)


@given(params_of, st.integers(0, 1000))
def test_a_draft_vocabulary_ranks_as_the_targets_with_the_rest_forbidden(
    params: SamplingParams, model: int
) -> None:
    ids = np.sort(np.random.default_rng(model).choice(300, 80, replace=False))
    logits = logits_of(model)
    masked = np.full(300, -np.inf, dtype=np.float32)
    masked[ids] = logits[ids]
    history = [3, 5, 7, 5, *range(100, 130)]
    own = rank(logits[ids], params, 7, history, 64, 5, ids)
    everything = rank(masked, params, 7, history, 64, 5)
    assert own.tokens == everything.tokens
    assert own.confidences == pytest.approx(everything.confidences)


def test_filters_leave_fewer_than_asked() -> None:
    ranked = rank(logits_of(1), SamplingParams(seed=0, top_k=2), 0, [], 64, 5)
    assert len(ranked.tokens) == len(ranked.confidences) == 2
    assert sum(ranked.confidences) == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_is_an_engine_error(temperature: float) -> None:
    logits = np.array([0.0, np.nan, 1.0], dtype=np.float32)
    with pytest.raises(EngineError, match="NaN"):
        rank(logits, SamplingParams(seed=0, temperature=temperature), 0, [], 2, 2)


# -- many ----------------------------------------------------------------------------------------


@given(params_of, st.integers(0, 1000))
def test_many_rank_like_one_each_after_its_own_path(params: SamplingParams, model: int) -> None:
    ids = np.sort(np.random.default_rng(model).choice(900, 300, replace=False))
    logits = np.array([logits_of(model + row) for row in range(3)])
    paths = [(), (5,), (5, int(ids[7]))]
    found = rank_all(logits, params, [3, 5, 7], paths, 64, 4, ids)
    for one, row, path in zip(found, logits, paths, strict=True):
        text = [3, 5, 7, *path]
        assert one == rank(row, params, len(text), text, 64, 4, ids)


def test_a_row_that_leaves_none_has_none() -> None:
    logits = np.array([[0.0, 1.0], [0.0, np.nan], [-np.inf, -np.inf]], dtype=np.float32)
    found = rank_all(logits, SamplingParams(seed=0), [], [()] * 3, 0, 4)
    assert [len(one.tokens) for one in found] == [2, 0, 0]
    assert found[1] == found[2] == ([], [])
