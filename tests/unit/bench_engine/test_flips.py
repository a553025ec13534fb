from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from starsd.bench.engine import flips
from starsd.bench.engine.answers import Answer, Job
from starsd.bench.engine.flips import Tally, choices, divergence, measure, read
from starsd.engine.interface import Runner
from starsd.sampling.sampler import sample
from starsd.settings.target import TargetSettings
from tests.scripted import DriftModel, HashModel

FOREVER = math.inf
SETTINGS = TargetSettings(max_sequences=1, max_length=64)


def runner_of(model: type[HashModel] = HashModel) -> Runner:
    return model(SETTINGS).runner()


def answer_of(temperature: float, seed: int, length: int = 12) -> Answer:
    model, answer = HashModel(SETTINGS), Answer(Job("p", seed, temperature), [1, 2, seed])
    for _ in range(length):
        text = answer.text
        answer.tokens.append(sample(model.logits(text), answer.job.sampling, len(text), text))
    return answer


ANSWERS = [answer_of(temperature, seed) for seed in range(4) for temperature in (0.0, 0.7)]


def test_the_same_model_never_flips() -> None:
    (same,) = measure(runner_of(), {}, ANSWERS, FOREVER)
    assert (same.precision, same.positions, same.flips) == ("float32", 96, 0)
    reference, other = measure(runner_of(), {"int8": runner_of()}, ANSWERS, FOREVER)
    assert (other.precision, other.flips) == ("int8", 0)
    assert other.kl == pytest.approx(0, abs=1e-6)
    assert reference == same


def test_flips_are_counted_against_float32s_own_tokens() -> None:
    _, other = measure(runner_of(), {"int4": runner_of(DriftModel)}, ANSWERS, FOREVER)
    expected = sum(
        a != b
        for answer in ANSWERS
        for a, b in zip(answer.tokens, _own(DriftModel(SETTINGS), answer), strict=True)
    )
    assert 0 < expected < 60
    assert (other.positions, other.flips) == (96, expected)
    assert other.rate == pytest.approx(expected / 96)
    assert list(other.rate_at) == ["0.0", "0.7"]
    assert sum(other.rate_at.values()) / 2 == pytest.approx(other.rate)
    assert other.kl > 0.1


def _own(model: HashModel, answer: Answer) -> list[int]:
    ends = range(len(answer.ids), len(answer.text))
    texts = [answer.text[:end] for end in ends]
    return [sample(model.logits(text), answer.job.sampling, len(text), text) for text in texts]


def test_texts_that_were_not_float32s_count_as_its_flips() -> None:
    """Another batch may have rounded otherwise."""
    answer = answer_of(0.0, 1)
    answer.tokens[-1] = (answer.tokens[-1] + 1) % 256
    (found,) = measure(runner_of(), {}, [answer], FOREVER)
    assert (found.positions, found.flips) == (12, 1)


def test_the_deadline_ends_it() -> None:
    assert measure(runner_of(), {}, ANSWERS, time.monotonic() - 1) == []


def test_every_token_is_read_with_all_before_it() -> None:
    answer = ANSWERS[0]
    logits = read(runner_of(), answer)
    assert logits.shape[0] == len(answer.tokens)
    assert choices(logits, answer) == answer.tokens


def test_divergence() -> None:
    rng = np.random.default_rng(0)
    true, other = rng.normal(0, 3, (2, 5, 50)).astype(np.float32)
    expected = rel_entr(softmax(true, 1), softmax(other, 1)).sum()
    assert divergence(true, other) == pytest.approx(float(expected), rel=1e-4)
    assert divergence(true, true + 7) == pytest.approx(0, abs=1e-5)


def test_tally() -> None:
    tally = Tally()
    for ours, theirs in (([1, 2, 3], [1, 5, 3]), ([4], [4])):
        _add(tally, ours, theirs)
    assert (tally.positions, tally.flips, tally.kl) == (4, 1, 1.0)


def _add(tally: Tally, ours: Sequence[int], theirs: Sequence[int]) -> None:
    tally.add(ours, theirs, 0.5)


def test_log_softmax_of_large_logits() -> None:
    found = flips.log_softmax(np.array([[1e4, 1e4]], np.float32))
    assert found == pytest.approx(np.log(0.5))
