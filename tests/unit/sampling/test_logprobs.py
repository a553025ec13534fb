"""Log probabilities of the model's own distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from starsd.sampling.logprobs import LEAST, logprobs
from starsd.sampling.noise import Floats


def row(seed: int, size: int = 50, spread: float = 3.0) -> Floats:
    return np.random.default_rng(seed).normal(0.0, spread, size).astype(np.float32)


@given(seed=st.integers(0, 1000), token=st.integers(0, 49), count=st.integers(0, 20))
def test_they_are_the_log_softmax(seed: int, token: int, count: int) -> None:
    logits = row(seed)
    found = logprobs(logits, token, count)
    exact = log_softmax(logits.astype(np.float64))
    assert found.chosen == pytest.approx(exact[token], abs=1e-9)
    assert found.ids == np.argsort(-exact, kind="stable")[:count].tolist()
    assert found.values == pytest.approx(exact[found.ids].tolist(), abs=1e-9)


def test_ties_go_to_the_lower_id() -> None:
    found = logprobs(np.array([1.0, 2.0, 2.0, 2.0], dtype=np.float32), 0, 2)
    assert found.ids == [1, 2]


def test_huge_logits_lose_nothing() -> None:
    found = logprobs(np.array([3e38, 1.0, -3e38], dtype=np.float32), 1, 3)
    assert found.values[0] == 0.0
    assert found.chosen == LEAST


def test_the_impossible_has_the_least_there_is() -> None:
    logits = np.array([0.0, -np.inf, 0.0], dtype=np.float32)
    found = logprobs(logits, 1, 3)
    assert found.chosen == LEAST
    assert found.ids == [0, 2]
    certain = logprobs(np.array([0.0, np.inf], dtype=np.float32), 1, 2)
    assert (certain.chosen, certain.ids, certain.values) == (0.0, [1], [0.0])


def test_more_than_there_are() -> None:
    assert len(logprobs(row(1, size=3), 0, 20).ids) == 3
