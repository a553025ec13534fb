"""The identity ladder once more, short, on the default model."""

from __future__ import annotations

from typing import Any

import pytest

from starsd.check.identity import make_questions
from starsd.engine.interface import Runner
from starsd.engine.loading import PretrainedModel, load_drafter_runner
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings import DraftSettings, TargetSettings
from tests.identity.reference import Reference
from tests.identity.test_matrix import STAR, TEMPERATURES, acceptance, outcomes
from tests.ministar import MiniStar

pytestmark = [pytest.mark.real, pytest.mark.timeout(420)]

ANSWER = 24
SIZE: dict[str, Any] = {"max_sequences": 8, "max_length": 256, "batch_invariant": True}


@pytest.fixture(scope="module")
def model() -> PretrainedModel:
    return PretrainedModel(TargetSettings(**SIZE))


@pytest.fixture(scope="module")
def target(model: PretrainedModel) -> Runner:
    return model.runner()


@pytest.fixture(scope="module")
def draft() -> Runner:
    """Wrong often enough; not batch-invariant, because nothing may depend on the draft's bits."""
    return load_drafter_runner(DraftSettings(draft="noisy:0.05", max_sequences=8, max_length=256))


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


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_alone_and_in_company(
    model: PretrainedModel, target: Runner, draft: Runner, temperature: float
) -> None:
    requests = make_requests(model, 8, temperature)
    with MiniStar([target], target={"drafting": False}) as star:
        expected = outcomes(star.run(requests[:2]))
    with MiniStar([target], target={"drafting": False}) as star:
        company = outcomes(star.run(requests))
    with MiniStar([target], draft, target=STAR) as star:
        alone = [outcomes(star.run([request]))[0] for request in requests[:2]]
    with MiniStar([target], draft, target=STAR) as star:
        answers = star.run(requests)
    assert company[:2] == expected
    assert alone == expected
    assert outcomes(answers) == company
    assert 0.2 <= acceptance(answers) <= 0.9


@pytest.mark.parametrize("depth", [1, 4, 8])
def test_depths(model: PretrainedModel, target: Runner, draft: Runner, depth: int) -> None:
    requests = make_requests(model, 4, 0.8)
    with MiniStar([target], target={"drafting": False}) as star:
        expected = outcomes(star.run(requests))
    with MiniStar([target], draft, target={**STAR, "draft_depth": depth}) as star:
        assert outcomes(star.run(requests)) == expected


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
