from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.errors import EngineError, RequestError
from starsd.protocol.sampling import Penalties, SamplingParams
from starsd.sampling.noise import Floats
from starsd.sampling.processing import (
    Candidates,
    adjusted,
    candidates,
    check_bias,
    min_p,
    tempered,
    top_k,
    top_p,
)

Keep = Callable[[Candidates], Candidates]

coarse = st.integers(-6, 6).map(float)  # many ties
fine = st.floats(-30, 30, allow_subnormal=False)
scores_of = st.one_of(
    st.lists(coarse, min_size=1, max_size=60), st.lists(fine, min_size=1, max_size=60)
)


def everything(scores: list[float]) -> Candidates:
    """Ids with gaps, so that an id is not mistaken for an index."""
    return Candidates(np.arange(len(scores)) * 3 + 1, np.array(scores))


def ranked(kept: Candidates) -> list[tuple[int, float]]:
    """(id, score), best first, ties to the lower id: the naive full sort."""
    pairs = zip(kept.ids.tolist(), kept.scores.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def softmax(scores: list[float]) -> list[float]:
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


@given(scores_of, st.integers(0, 70))
def test_top_k_equals_a_full_sort(scores: list[float], count: int) -> None:
    start = everything(scores)
    expected = sorted(token for token, _ in ranked(start)[: count or None])
    kept = top_k(start, count)
    assert kept.ids.tolist() == expected
    assert kept.scores.tolist() == [scores[(token - 1) // 3] for token in expected]


@given(scores_of, st.floats(0, 1))
def test_top_p_equals_a_full_sort(scores: list[float], mass: float) -> None:
    start = everything(scores)
    order = ranked(start)
    kept = top_p(start, mass).ids.tolist()
    assert kept == sorted(token for token, _ in order[: len(kept)])
    if mass == 1.0:
        assert len(kept) == len(scores)
        return
    probabilities = softmax([score for _, score in order])
    assert math.fsum(probabilities[: len(kept) - 1]) <= mass + 1e-12  # no token past the crossing
    assert math.fsum(probabilities[: len(kept)]) >= mass - 1e-12  # and the crossing one kept


@given(scores_of, st.floats(0, 1))
def test_min_p_is_relative_to_the_best(scores: list[float], ratio: float) -> None:
    start = everything(scores)
    kept = set(min_p(start, ratio).ids.tolist())
    best = max(scores)
    for token, score in ranked(start):
        relative = math.exp(score - best)
        if abs(relative - ratio) > 1e-12 * ratio:
            assert (token in kept) == (relative >= ratio)


@given(scores_of, st.integers(0, 70), st.floats(0, 1), st.floats(0, 1), st.floats(1e-4, 100))
def test_the_pipeline_runs_its_steps_in_order(
    scores: list[float], k: int, p: float, ratio: float, temperature: float
) -> None:
    params = SamplingParams(seed=0, temperature=temperature, top_k=k, top_p=p, min_p=ratio)
    logits = np.array(scores, dtype=np.float32)
    by_hand = Candidates(np.arange(len(scores)), logits.astype(np.float64) / temperature)
    steps: list[Keep] = [
        lambda c: top_k(c, k),
        lambda c: top_p(c, p),
        lambda c: min_p(c, ratio),
    ]
    for step in steps:
        by_hand = step(by_hand)
    kept = candidates(logits, params, [])
    assert len(kept.ids) >= 1
    assert kept.ids.tolist() == by_hand.ids.tolist()
    assert kept.scores.tolist() == by_hand.scores.tolist()


def test_top_p_renormalises_over_top_k() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    # of two, .4 / .7 = .57 crosses .5 alone; of four it does not
    two = SamplingParams(seed=0, top_k=2, top_p=0.5)
    four = SamplingParams(seed=0, top_p=0.5)
    assert candidates(logits, two, []).ids.tolist() == [0]
    assert candidates(logits, four, []).ids.tolist() == [0, 1]


def test_min_p_sees_the_tempered_distribution() -> None:
    logits = np.array([0.0, -1.0], dtype=np.float32)
    cold = SamplingParams(seed=0, temperature=0.5, min_p=0.2)
    warm = SamplingParams(seed=0, temperature=1.0, min_p=0.2)
    assert candidates(logits, cold, []).ids.tolist() == [0]
    assert candidates(logits, warm, []).ids.tolist() == [0, 1]


def naive_penalties(
    logits: list[float], penalties: Penalties, path: list[int], prompt_len: int
) -> list[float]:
    output, result = path[prompt_len:], []
    for token, logit in enumerate(logits):
        if token in path:
            r = penalties.repetition
            logit = logit / r if logit > 0 else logit * r
        count = output.count(token)
        result.append(logit - count * penalties.frequency - (count > 0) * penalties.presence)
    return result


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=8, max_size=8),
    st.builds(Penalties, st.floats(-2, 2), st.floats(-2, 2), st.floats(0.5, 2)),
    st.lists(st.integers(0, 9), max_size=20),  # 8 and 9: a larger vocabulary's ids
    st.integers(0, 20),
)
def test_penalties_count_output_and_path(
    logits: list[float], penalties: Penalties, path: list[int], prompt_len: int
) -> None:
    params = SamplingParams(seed=0, penalties=penalties, prompt_len=prompt_len)
    scores = adjusted(np.array(logits, dtype=np.float32), params, path)
    expected = naive_penalties(logits, penalties, path, prompt_len)
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)


def test_bias_is_added_after_penalties_and_before_the_mask() -> None:
    params = SamplingParams(
        seed=0, penalties=Penalties(repetition=2.0), bias={0: 5.0, 1: 100.0, 99: 1.0}
    )
    logits = np.array([4.0, 1.0, 2.0], dtype=np.float32)
    allowed = np.array([True, False, True])
    assert adjusted(logits, params, [0], allowed).tolist() == [7.0, -np.inf, 2.0]
    assert logits.tolist() == [4.0, 1.0, 2.0]  # the runner's buffer is not written to


def test_bias_out_of_range_is_refused_at_admission() -> None:
    check_bias(SamplingParams(seed=0, bias={0: 1.0, 9: -100.0}), 10)
    for bias in ({10: 1.0}, {-1: 1.0}, {3: math.inf}, {3: math.nan}):
        with pytest.raises(RequestError, match="logit_bias"):
            check_bias(SamplingParams(seed=0, bias=bias), 10)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([-np.inf, 1.0, -np.inf, 0.0], [1, 3]),
        ([np.inf, 1.0, np.inf, -np.inf], [0, 2]),
        ([65504.0, -65504.0, 65503.0], [0, 1, 2]),
        ([3.4e38, -3.4e38], [0, 1]),
    ],
)
@pytest.mark.parametrize("temperature", [1e-5, 1e-4, 1.0, 100.0])
def test_infinite_and_huge_logits_never_give_nan(
    scores: list[float], expected: list[int], temperature: float
) -> None:
    params = SamplingParams(seed=0, temperature=temperature)
    kept = candidates(np.array(scores, dtype=np.float32), params, [])
    assert kept.ids.tolist() == expected
    assert np.isfinite(kept.scores).all()
    hard = SamplingParams(seed=0, temperature=temperature, top_k=2, top_p=1e-9, min_p=0.5)
    assert candidates(np.array(scores, dtype=np.float32), hard, []).ids.tolist() == expected[:1]


def bad(*scores: float) -> Floats:
    return np.array(scores, dtype=np.float64)


@pytest.mark.parametrize("logits", [bad(0.0, np.nan), bad(np.nan, np.inf), bad(-np.inf, -np.inf)])
def test_logits_without_a_distribution_are_an_engine_error(logits: Floats) -> None:
    with pytest.raises(EngineError, match="logits"):
        candidates(logits, SamplingParams(seed=0), [])


def test_a_mask_that_allows_nothing_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="masked"):
        adjusted(bad(1.0, 2.0), SamplingParams(seed=0), [], np.zeros(2, dtype=np.bool_))


def test_hostile_penalties_are_an_engine_error_not_nan() -> None:
    zero = SamplingParams(seed=0, penalties=Penalties(repetition=0.0, presence=math.inf))
    with pytest.raises(EngineError):
        adjusted(bad(np.inf, 1.0), SamplingParams(seed=0, bias={0: -math.inf}), [])
    with pytest.raises(EngineError):
        adjusted(bad(1.0, 1.0), zero, [0, 1])


def test_tempered_keeps_all_tokens_by_default() -> None:
    kept = tempered(np.array([1.0, 2.0], dtype=np.float32), 0.5)
    assert kept.ids.tolist() == [0, 1]
    assert kept.scores.tolist() == [2.0, 4.0]
