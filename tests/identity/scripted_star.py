"""Mini stars over scripted models: exact, quick, and wrong as often as a test wants."""

from __future__ import annotations

import random
from typing import Any

from starsd.engine.interface import Runner
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.ministar import Answer, MiniStar
from tests.scripted import EOS, DriftModel, HashModel

PATIENT = {"wait_budget": 100.0}
"""Waits for every proposal, so that all of them are verified."""


def target_runner(slots: int = 8) -> Runner:
    return HashModel(TargetSettings(max_sequences=slots, max_length=256)).runner()


def draft_runner(slots: int = 8) -> Runner:
    """Wrong after three histories in ten."""
    return DriftModel(DraftSettings(max_sequences=slots, max_length=256)).runner()


def make_requests(count: int = 6, max_tokens: int = 40, temperature: float = 0.8) -> list[Submit]:
    choose = random.Random(count)
    requests = []
    for index in range(count):
        prompt = [choose.randrange(256) for _ in range(choose.randint(3, 30))]
        params = SamplingParams(
            seed=choose.getrandbits(64),
            temperature=temperature if index % 2 else 0.0,
            prompt_len=len(prompt),
        )
        requests.append(
            Submit(
                id=f"r{index}", prompt=prompt, sampling=params, max_tokens=max_tokens, eos=(EOS,)
            )
        )
    return requests


def plain_tokens(requests: list[Submit]) -> list[list[int]]:
    with MiniStar([target_runner()], target={"drafting": False}) as star:
        return [answer.tokens for answer in star.run(requests)]


def tokens(answers: list[Answer]) -> list[list[int]]:
    assert all(answer.ends == 1 and answer.error is None for answer in answers)
    return [answer.tokens for answer in answers]


def make_star(targets: int = 2, **changes: Any) -> MiniStar:
    """Two patient targets and a drifting draft."""
    given: dict[str, Any] = {"target": PATIENT, **changes}
    return MiniStar([target_runner() for _ in range(targets)], draft_runner(), **given)
