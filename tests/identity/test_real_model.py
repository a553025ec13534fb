"""The identity ladder once more, short, on the default model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from starsd.check.identity import make_questions
from starsd.engine.interface import Runner
from starsd.engine.loading import PretrainedModel, load_drafter_runner
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.identity.reference import Reference
from tests.identity.test_matrix import STAR, TEMPERATURES, Outcome, acceptance, outcomes
from tests.identity.test_trees import per_round
from tests.ministar import MiniStar

pytestmark = [pytest.mark.real, pytest.mark.timeout(420)]

ANSWER = 16
SIZE: dict[str, Any] = {"max_sequences": 8, "max_length": 256}
COMPILED: dict[str, dict[str, Any]] = {
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
}
"""Batch-invariant by itself."""
TORCH = "float32"
"""Many times slower; that it does other depths and trees is proved on the tiny model."""
PRECISIONS = {TORCH: {"dtype": "float32", "batch_invariant": True}, **COMPILED}


def marked(precision: str, *values: Any) -> Any:
    """Loading takes longer than most tests, so all tests of a precision are one worker's."""
    mark = pytest.mark.xdist_group(f"real-{precision}")
    return pytest.param(precision, *values, marks=mark)


# Tests come in random order, so fixtures with parameters would load models over and over.
@cache
def model_of(precision: str) -> PretrainedModel:
    return PretrainedModel(TargetSettings(**SIZE, **PRECISIONS[precision]))


@cache
def target_of(precision: str) -> Runner:
    return model_of(precision).runner()


@cache
def draft_of(precision: str) -> Runner:
    """Wrong often enough; not batch-invariant, because nothing may depend on the draft's bits."""
    given = {**PRECISIONS[precision], "batch_invariant": False}
    return load_drafter_runner(DraftSettings(draft="noisy:0.05", **SIZE, **given))


def company(precision: str) -> int:
    """Requests at once. Six of torch's are enough answers to judge acceptance by."""
    return 6 if precision == TORCH else 8


@cache
def plain(precision: str, temperature: float) -> list[Outcome]:
    """Answers to that many, without drafting."""
    requests = make_requests(precision, company(precision), temperature)
    with MiniStar([target_of(precision)], target={"drafting": False}) as star:
        return outcomes(star.run(requests))


@pytest.fixture(scope="module", autouse=True)
def unload() -> Iterator[None]:
    yield
    for loaded in (plain, draft_of, target_of, model_of):
        loaded.cache_clear()


def make_requests(precision: str, count: int, temperature: float) -> list[Submit]:
    tokenizer = model_of(precision).tokenizer()
    requests: list[Submit] = []
    for question in make_questions(count, ANSWER):
        prompt = tokenizer.encode_chat([{"role": "user", "content": question.prompt}])
        params = SamplingParams(
            seed=question.seed + len(prompt), temperature=temperature, prompt_len=len(prompt)
        )
        requests.append(
            Submit(
                id=f"r{len(requests)}",
                prompt=prompt,
                sampling=params,
                max_tokens=ANSWER,
                eos=tokenizer.eos_ids,
            )
        )
    return requests


@pytest.mark.parametrize(
    ("precision", "temperature"),
    [marked(TORCH, 0.8), *itertools.starmap(marked, itertools.product(COMPILED, TEMPERATURES))],
)
def test_alone_and_in_company(precision: str, temperature: float) -> None:
    target, draft = target_of(precision), draft_of(precision)
    requests = make_requests(precision, company(precision), temperature)
    with MiniStar([target], target={"drafting": False}) as star:
        expected = outcomes(star.run(requests[:2]))
    with MiniStar([target], draft, target=STAR) as star:
        alone = [outcomes(star.run([request]))[0] for request in requests[:2]]
    with MiniStar([target], draft, target=STAR) as star:
        answers = star.run(requests)
    assert plain(precision, temperature)[:2] == expected
    assert alone == expected
    assert outcomes(answers) == plain(precision, temperature)
    assert 0.2 <= acceptance(answers) <= 0.9


@pytest.mark.parametrize("precision", [*map(marked, COMPILED)])
@pytest.mark.parametrize("depth", [1, 4, 8])
def test_depths(precision: str, depth: int) -> None:
    own = {**STAR, "draft_depth": depth}
    with MiniStar([target_of(precision)], draft_of(precision), target=own) as star:
        answers = star.run(make_requests(precision, 4, 0.8))
    assert outcomes(answers) == plain(precision, 0.8)[:4]


@pytest.mark.parametrize("precision", [*map(marked, COMPILED)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees(precision: str, temperature: float) -> None:
    target, draft = target_of(precision), draft_of(precision)
    with MiniStar([target], draft, target=STAR, draft={"trees": "on"}) as star:
        answers = star.run(make_requests(precision, 4, temperature))
    assert outcomes(answers) == plain(precision, temperature)[:4]
    assert per_round(answers) > 1.0


@pytest.mark.xdist_group(f"real-{TORCH}")
def test_plain_decoding_is_the_independent_references() -> None:
    reference = Reference(model_of(TORCH).folder)
    ties = 0
    for temperature in TEMPERATURES:
        requests = make_requests(TORCH, 4, temperature)
        with MiniStar([target_of(TORCH)], target={"drafting": False}) as star:
            answers = star.run(requests)
        for request, answer in zip(requests, answers, strict=True):
            judged = reference.judge(request.prompt, answer.tokens, request.sampling)
            assert judged >= 0
            ties += judged
    assert ties <= 1
