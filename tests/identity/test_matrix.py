"""Invariant 1: the star's text is plain decoding's, token for token, at every temperature."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from services.draft.step import HubLoop
from starsd.engine.interface import Runner
from starsd.protocol.frames import Origin, Submit
from tests.identity.reference import Reference
from tests.identity.support import make_requests
from tests.ministar import Answer, MiniStar
from tests.tiny import LAYERS_DRAFT, NOISY_DRAFT

TEMPERATURES = (0.0, 0.8, 1.0)
STAR = {"wait_budget": 100.0}
Outcome = tuple[list[int], object]


def outcomes(answers: list[Answer]) -> list[Outcome]:
    assert all(answer.ends == 1 and answer.error is None for answer in answers)
    return [(answer.tokens, answer.reason) for answer in answers]


def acceptance(answers: list[Answer]) -> float:
    """Of the proposed tokens that were compared with a sample, the share that equalled it."""
    origins = [origin for answer in answers for origin in answer.origins]
    accepted, recovered = origins.count(Origin.ACCEPTED), origins.count(Origin.RECOVERED)
    assert accepted + recovered > 50
    return accepted / (accepted + recovered)


def plain(runner: Runner, requests: list[Submit]) -> list[Outcome]:
    """Plain decoding, one request at a time."""
    with MiniStar([runner], target={"drafting": False}) as star:
        return [outcomes(star.run([request]))[0] for request in requests]


@pytest.fixture(scope="module")
def expected_at(targets: list[Runner]) -> Callable[[float], list[Outcome]]:
    """Plain answers to ``make_requests(8, temperature)``, computed once."""
    return cache(lambda temperature: plain(targets[0], make_requests(8, temperature)))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_plain_decoding_is_the_independent_references(
    reference: Reference, expected_at: Callable[[float], list[Outcome]], temperature: float
) -> None:
    requests = make_requests(8, temperature)
    ties = 0
    for request, (tokens, _) in zip(requests, expected_at(temperature), strict=True):
        judged = reference.judge(request.prompt, tokens, request.sampling)
        assert judged >= 0
        ties += judged
    assert ties <= 1


def test_reference_generates_the_same_by_itself(
    reference: Reference, targets: list[Runner]
) -> None:
    """The judge above is teacher-forced; once, the reference walks alone."""
    (request,) = make_requests(1, 0.8)
    ((tokens, _),) = plain(targets[0], [request])
    assert reference.generate(request.prompt, request.sampling, len(tokens)) == tokens


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_plain_decoding_in_company_is_plain_decoding_alone(
    targets: list[Runner], expected_at: Callable[[float], list[Outcome]], temperature: float
) -> None:
    requests = make_requests(8, temperature)
    with MiniStar([targets[0]], target={"drafting": False}) as star:
        together = outcomes(star.run(requests))
    assert together == expected_at(temperature)


@pytest.mark.parametrize("draft", [LAYERS_DRAFT, NOISY_DRAFT])
@pytest.mark.parametrize("depth", range(1, 9))
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_star_is_plain_decoding(
    targets: list[Runner],
    drafts: dict[str, Runner],
    expected_at: Callable[[float], list[Outcome]],
    temperature: float,
    depth: int,
    draft: str,
) -> None:
    """Alone, then eight at once on two targets that share one hub."""
    requests = make_requests(8, temperature)
    expected = expected_at(temperature)
    settings = {**STAR, "draft_depth": depth}
    with MiniStar(targets, drafts[draft], target=settings) as star:
        alone = outcomes(star.run(requests[:1]))
    with MiniStar(targets, drafts[draft], target=settings) as star:
        answers = star.run(requests)
    assert alone == expected[:1]
    assert outcomes(answers) == expected
    assert 0.2 <= acceptance(answers) <= 0.9


@pytest.mark.parametrize("trees", ["on", "off"])
@pytest.mark.parametrize("draft_step_s", [0.0005, 0.02], ids=["quick", "slow"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_star_that_chooses_its_depths_is_plain_decoding(
    targets: list[Runner],
    drafts: dict[str, Runner],
    expected_at: Callable[[float], list[Outcome]],
    temperature: float,
    draft_step_s: float,
    trees: str,
) -> None:
    """Of a slow hub proposals come late, or not at all; a tree has only what is worth its price."""
    settings = {**STAR, "depth_control": "auto", "ngram": 0}
    hub, own = drafts[LAYERS_DRAFT], {"trees": trees}
    with MiniStar(targets, hub, draft_step_s=draft_step_s, target=settings, draft=own) as star:
        answers = star.run(make_requests(8, temperature))
    assert outcomes(answers) == expected_at(temperature)
    assert sum(answer.stats.rounds for answer in answers) > 0


class Forgetful:
    """A hub that forgets every sequence as soon as it has answered it."""

    def __init__(self, hub: HubLoop) -> None:
        self._hub = hub

    def step(self) -> bool:
        worked = self._hub.step()
        self._hub.forget_idle()
        return worked


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_star_with_constant_eviction_is_plain_decoding(
    targets: list[Runner],
    drafts: dict[str, Runner],
    expected_at: Callable[[float], list[Outcome]],
    temperature: float,
) -> None:
    requests = make_requests(8, temperature)
    with MiniStar(targets, drafts[LAYERS_DRAFT], target=STAR, draft={"seq_idle_s": 1e-9}) as star:
        star.hub = Forgetful(star.real_hub)
        answers = star.run(requests)
        needed = sum(
            pod.metric("starsd:hub_replies_total", status="need_prefix") for pod in star.pods
        )
    assert outcomes(answers) == expected_at(temperature)
    assert needed > 30
    assert 0.2 <= acceptance(answers) <= 0.9


@pytest.mark.parametrize(
    "sampling", [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.9}]
)
def test_star_with_filters_is_plain_decoding(
    targets: list[Runner], drafts: dict[str, Runner], sampling: dict[str, float]
) -> None:
    requests = make_requests(8, 0.9, **sampling)
    with MiniStar(targets, drafts[NOISY_DRAFT], target=STAR) as star:
        answers = star.run(requests)
    assert outcomes(answers) == plain(targets[0], requests)
    assert sum(answer.stats.accepted for answer in answers) > 20
