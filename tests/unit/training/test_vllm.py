"""``--sampler vllm``, on a stand-in with its interface (see docs/draft.md for the real one)."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from starsd.errors import ConfigError
from tests.unit.training.test_dialogues import ANSWER, EOS, FRAME, OPENING, REPLY, WORD, run
from training.dialogues import ANSWER_TOKENS, TEMPERATURES, USER_TOKENS
from training.vllm import VllmSpeaker

TURN = [WORD] * 6


class Engine:
    """Says six words and ends, or is cut."""

    def __init__(self, **options: Any) -> None:
        assert options == {"model": "folder", "dtype": "bfloat16", "max_model_len": 2000}
        self.asked: list[tuple[list[int], Any]] = []

    def generate(self, prompts: Any, params: Any, use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        self.asked += [
            (list(one["prompt_token_ids"]), p) for one, p in zip(prompts, params, strict=True)
        ]
        said = [([*TURN, EOS])[: one.max_tokens] for one in params]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=one)]) for one in said]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("vllm")
    module.LLM = Engine
    module.SamplingParams = lambda **given: SimpleNamespace(**given)
    module.__spec__ = SimpleNamespace(name="vllm")
    monkeypatch.setitem(sys.modules, "vllm", module)


@pytest.mark.usefixtures("installed")
def test_turn_by_turn() -> None:
    speaker = VllmSpeaker("folder", FRAME, frozenset({EOS}), at_once=3, max_length=2000, seed=3)
    for one in run(speaker, 12):
        first = [*OPENING, *TURN, EOS, *ANSWER, *TURN, EOS]
        more = [*REPLY, *TURN, EOS, *ANSWER, *TURN, EOS]
        rest = one.tokens.tolist()[len(first) :]
        assert one.tokens.tolist()[: len(first)] == first
        assert rest == more * (len(rest) // len(more))
    engine: Any = speaker._engine
    limits = {p.max_tokens for _, p in engine.asked}
    assert limits == {USER_TOKENS, ANSWER_TOKENS}
    assert all(p.temperature == 1.0 for _, p in engine.asked if p.max_tokens == USER_TOKENS)
    assert {p.temperature for _, p in engine.asked} == set(TEMPERATURES)


def test_not_installed() -> None:
    with pytest.raises(ConfigError, match="--sampler vllm: it is not installed here"):
        VllmSpeaker("folder", FRAME, frozenset({EOS}), at_once=3, max_length=2000, seed=3)
