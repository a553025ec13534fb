"""Invariant 1 over turns: with kept prefixes a chat says what it says without, bit by bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from starsd.engine.interface import Runner
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from tests.identity.support import ANSWER, EOS, draft_runner, target_runner
from tests.ministar import MiniStar
from tests.tiny import LAYERS_DRAFT, VOCAB

TURNS = 3
CHATS = 5
REUSED = "starsd:prefix_tokens_reused_total"
PRECISIONS: dict[str, dict[str, Any]] = {
    "torch": {},
    "native": {"quantize": "int8", "dtype": "auto", "batch_invariant": False},
}


@pytest.fixture(scope="module", params=PRECISIONS)
def target(request: pytest.FixtureRequest, tiny_model: Path, native_cache: Path) -> Runner:
    return target_runner(tiny_model, cache_dir=native_cache, **PRECISIONS[request.param])


@pytest.fixture(scope="module")
def draft(tiny_model: Path) -> Runner:
    return draft_runner(tiny_model, LAYERS_DRAFT)


def talk(star: MiniStar, temperature: float) -> list[list[int]]:
    """All that is said in chats of which two begin alike, all at once in every turn."""
    choose = random.Random(temperature)
    texts = [choose.choices(range(3, VOCAB), k=20) for _ in range(CHATS)]
    texts[1] = [*texts[0][:17], *texts[1][17:]]
    said = []
    for turn in range(TURNS):
        requests = [_request(f"{turn}.{i}", text, temperature) for i, text in enumerate(texts)]
        answers = star.run(requests)
        assert all(answer.ends == 1 and answer.error is None for answer in answers)
        said += [answer.tokens for answer in answers]
        more = [choose.choices(range(3, VOCAB), k=choose.randint(1, 9)) for _ in texts]
        texts = [
            text + one.tokens + new for text, one, new in zip(texts, answers, more, strict=True)
        ]
    return said


def _request(name: str, prompt: list[int], temperature: float) -> Submit:
    sampling = SamplingParams(seed=len(prompt), temperature=temperature, prompt_len=len(prompt))
    return Submit(id=name, prompt=prompt, sampling=sampling, max_tokens=ANSWER, eos=(EOS,))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("chunk", [7, 128])
def test_a_chat_says_the_same(
    target: Runner, draft: Runner, chunk: int, temperature: float
) -> None:
    settings = {"wait_budget": 100.0, "prefill_chunk": chunk}
    with MiniStar([target], target={"drafting": False, "prefix_cache": 0.0}) as star:
        expected = talk(star, temperature)
    for drafting in (True, False):
        given = settings | {"drafting": drafting, "prefix_cache": 1.0}
        with MiniStar([target], draft, target=given) as star:
            assert talk(star, temperature) == expected
            assert star.pods[0].metric(REUSED) > 200
