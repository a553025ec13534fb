from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.neartie import near_edge, near_tie, perturbed_scores
from starsd.sampling.sampler import sample

Row = npt.NDArray[np.float32]
GREEDY = SamplingParams(seed=0, temperature=0.0)


def row(*logits: float) -> Row:
    return np.array(logits, dtype=np.float32)


def test_greedy_ties_are_judged_on_logits() -> None:
    logits = row(5.0, 4.9995, 4.99, -1.0)
    assert near_tie(logits, GREEDY, 0, [], 0, 1)
    assert not near_tie(logits, GREEDY, 0, [], 0, 2)
    assert not near_tie(logits, GREEDY, 0, [], 0, 7)


def test_sampled_ties_are_judged_under_the_noise() -> None:
    params = SamplingParams(seed=5, temperature=0.7)
    logits = row(1.0, 0.5, 0.0, -0.5)
    a, b = perturbed_scores(logits, params, 9, [], [0, 1])
    logits[1] += 0.7 * (a - b)  # now token 1 ties with token 0 in the race, not in logit
    a, b = perturbed_scores(logits, params, 9, [], [0, 1])
    assert abs(a - b) < 1e-5
    assert near_tie(logits, params, 9, [], 0, 1)
    assert not near_tie(logits, params, 10, [], 0, 1)


@given(st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_the_best_perturbed_score_is_the_sample(seed: int, position: int) -> None:
    params = SamplingParams(seed=seed)
    logits = np.random.default_rng(position).normal(0, 2, 40).astype(np.float32)
    scores = perturbed_scores(logits, params, position, [], range(40))
    assert int(scores.argmax()) == sample(logits, params, position, [])


@pytest.mark.parametrize(
    ("params", "logits", "on_edge", "off_edge"),
    [
        (SamplingParams(seed=0, top_k=2), row(3.0, 2.0, 1.9995, 1.0), {1, 2}, {0, 3}),
        (SamplingParams(seed=0, min_p=0.5), row(0.0, -0.6933, -0.6930, -1.0), {1, 2}, {0, 3}),
        (
            SamplingParams(seed=0, top_p=0.6995),
            np.log(row(0.4, 0.3, 0.2, 0.1)),
            {2},
            {0, 1, 3},
        ),
        (SamplingParams(seed=0, top_k=2), row(3.0, 2.0, 1.0), set(), {0, 1, 2}),
    ],
)
def test_edges_of_every_filter(
    params: SamplingParams, logits: Row, on_edge: set[int], off_edge: set[int]
) -> None:
    assert all(near_edge(logits, params, [], token) for token in on_edge)
    assert not any(near_edge(logits, params, [], token) for token in off_edge)


def test_an_edge_excuses_only_a_token_that_would_then_win() -> None:
    logits = row(3.0, 2.0, 1.9995, 1.0)
    params = [SamplingParams(seed=seed, top_k=2) for seed in range(200)]
    excused = 0
    for p in params:
        won = sample(logits, p, 0, [])
        scores = perturbed_scores(logits, p, 0, [], range(4))
        # token 2 comes in only as token 1 goes out: it then takes the race if it beats token 0
        tie = near_tie(logits, p, 0, [], won, 2)
        assert tie == (won == 1 or scores[2] >= scores[won] - 1e-3)
        assert not near_tie(logits, p, 0, [], won, 3)  # far below the edge: never an excuse
        excused += tie
    assert 0 < excused < 200


@given(st.integers(0, 2**32), st.sampled_from([0, 7]), st.sampled_from([0.6, 1.0]))
def test_what_jitter_changes_is_excused(seed: int, k: int, p: float) -> None:
    """Logits off by 1e-5 either give the same token or a near tie."""
    params = SamplingParams(seed=seed, top_k=k, top_p=p)
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(0, 1, 60), 1).astype(np.float32)  # ties abound
    jittered = (logits + rng.uniform(-1e-5, 1e-5, 60)).astype(np.float32)
    first, second = sample(logits, params, 3, []), sample(jittered, params, 3, [])
    assert first == second or near_tie(logits, params, 3, [], first, second)
