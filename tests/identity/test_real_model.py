"""The identity ladder once more, short, on the default model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
PRECISIONS: list[dict[str, Any]] = [
    {"dtype": "float32", "batch_invariant": True},
    {"dtype": "bfloat16"},
    {"quantize": "int8"},
    {"quantize": "int4"},
]
"""Compiled code is batch-invariant by itself."""


@pytest.fixture(scope="module")
def precision(request: pytest.FixtureRequest) -> dict[str, Any]:
    given: dict[str, Any] = request.param
    return given


@pytest.fixture(scope="module")
def model(precision: dict[str, Any]) -> PretrainedModel:
    return PretrainedModel(TargetSettings(**SIZE, **precision))


@pytest.fixture(scope="module")
def target(model: PretrainedModel) -> Runner:
    return model.runner()


@pytest.fixture(scope="module")
def draft(precision: dict[str, Any]) -> Runner:
    """Wrong often enough; not batch-invariant, because nothing may depend on the draft's bits."""
    given = {**precision, "batch_invariant": False}
    return load_drafter_runner(DraftSettings(draft="noisy:0.05", **SIZE, **given))


def make_requests(model: PretrainedModel, count: int, temperature: float) -> list[Submit]:
    tokenizer = model.tokenizer()
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


@pytest.fixture(scope="module")
def company_at(model: PretrainedModel, target: Runner) -> Callable[[float], list[Outcome]]:
    """Plain answers to ``make_requests(model, 8, temperature)`` at once, computed once."""

    def plain(temperature: float) -> list[Outcome]:
        with MiniStar([target], target={"drafting": False}) as star:
            return outcomes(star.run(make_requests(model, 8, temperature)))

    return cache(plain)


def name_of(one: float | dict[str, Any]) -> str:
    return "-".join(map(str, one.values())) if isinstance(one, dict) else str(one)


compiled = pytest.mark.parametrize("precision", PRECISIONS[1:], indirect=True, ids=name_of)
"""Torch is many times slower; that it does other depths and trees is proved on the tiny model."""


@pytest.mark.parametrize(
    ("precision", "temperature"),
    [(PRECISIONS[0], 0.8), *itertools.product(PRECISIONS[1:], TEMPERATURES)],
    indirect=["precision"],
    ids=name_of,
)
def test_alone_and_in_company(
    model: PretrainedModel,
    target: Runner,
    draft: Runner,
    company_at: Callable[[float], list[Outcome]],
    temperature: float,
) -> None:
    requests = make_requests(model, 8, temperature)
    with MiniStar([target], target={"drafting": False}) as star:
        expected = outcomes(star.run(requests[:2]))
    with MiniStar([target], draft, target=STAR) as star:
        alone = [outcomes(star.run([request]))[0] for request in requests[:2]]
    with MiniStar([target], draft, target=STAR) as star:
        answers = star.run(requests)
    company = company_at(temperature)
    assert company[:2] == expected
    assert alone == expected
    assert outcomes(answers) == company
    assert 0.2 <= acceptance(answers) <= 0.9


@compiled
@pytest.mark.parametrize("depth", [1, 4, 8])
def test_depths(
    model: PretrainedModel,
    target: Runner,
    draft: Runner,
    company_at: Callable[[float], list[Outcome]],
    depth: int,
) -> None:
    with MiniStar([target], draft, target={**STAR, "draft_depth": depth}) as star:
        answers = star.run(make_requests(model, 4, 0.8))
    assert outcomes(answers) == company_at(0.8)[:4]


@compiled
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees(
    model: PretrainedModel,
    target: Runner,
    draft: Runner,
    company_at: Callable[[float], list[Outcome]],
    temperature: float,
) -> None:
    with MiniStar([target], draft, target=STAR, draft={"trees": "on"}) as star:
        trees = star.run(make_requests(model, 4, temperature))
    assert outcomes(trees) == company_at(temperature)[:4]
    assert per_round(trees) > 1.0


@pytest.mark.parametrize("precision", PRECISIONS[:1], indirect=True, ids=name_of)
def test_plain_decoding_is_the_independent_references(
    model: PretrainedModel, target: Runner
) -> None:
    reference = Reference(model.folder)
    ties = 0
    for temperature in TEMPERATURES:
        requests = make_requests(model, 4, temperature)
        with MiniStar([target], target={"drafting": False}) as star:
            answers = star.run(requests)
        for request, answer in zip(requests, answers, strict=True):
            judged = reference.judge(request.prompt, answer.tokens, request.sampling)
            assert judged >= 0
            ties += judged
    assert ties <= 1
