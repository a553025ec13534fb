"""The options of ``starsd check identity``, with services that only remember being started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.check.client import Answer, Question
from starsd.cli import check, main
from starsd.protocol.frames import FinishReason, RequestStats
from starsd.sampling.sampler import sample
from starsd.settings.target import TargetSettings
from tests.scripted import HashModel

PROMPT = [1, 2, 3]


class FakeLab:
    """Starts nothing; ``common`` and ``started`` hold the settings it was given."""

    def __init__(self) -> None:
        self.common: dict[str, Any] = {}
        self.started: dict[str, dict[str, Any]] = {}
        self.services: dict[str, Any] = {}
        self.asked: list[Sequence[Question]] = []

    def __call__(self, **settings: Any) -> FakeLab:
        """Stands for the class as well."""
        self.common = settings
        return self

    def __enter__(self) -> FakeLab:
        return self

    def __exit__(self, *error: object) -> None: ...

    def start(self, name: str, kind: str, **settings: Any) -> Any:
        self.started[name] = settings
        return SimpleNamespace(url=name, wait_ready=lambda: None)

    def wait_ready(self) -> None: ...

    def wait_hubs(self) -> None: ...

    async def ask_all(self, urls: list[str], _: str, questions: Any, __: int) -> list[Answer]:
        """The star gives the tokens of ``HashModel``; plain decoding gives others."""
        self.asked.append(questions)
        return [own_answer(one) if len(urls) > 1 else other_answer() for one in questions]


def own_answer(question: Question) -> Answer:
    model, text = HashModel(TargetSettings()), list(PROMPT)
    for _ in range(question.max_tokens):
        text.append(sample(model.logits(text), question.sampling, len(text), text))
    stats = RequestStats(rounds=1, proposed=4, accepted=3)
    ids = text[len(PROMPT) :]
    return Answer(prompt_ids=PROMPT, ids=ids, reason=FinishReason.LENGTH, stats=stats)


def other_answer() -> Answer:
    return Answer(prompt_ids=PROMPT, ids=[9], reason=FinishReason.LENGTH)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    lab = FakeLab()
    monkeypatch.setattr(check, "Lab", lab)
    monkeypatch.setattr(check, "ask_all", lab.ask_all)
    monkeypatch.setenv("STARSD_SCRIPTED", "tests.scripted:HashModel")  # the reference
    return lab


def identity(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["check", "identity", "--prompts", "1", *options])


def test_defaults(lab: FakeLab) -> None:
    CliRunner().invoke(main.app, ["check", "identity"])
    assert [len(questions) for questions in lab.asked] == [200, 200]
    assert lab.common["batch_invariant"] is True


def test_prompts_and_max_tokens(lab: FakeLab) -> None:
    identity("--prompts", "3", "--max-tokens", "5")
    assert [one.max_tokens for one in lab.asked[0]] == [5, 5, 5]


@pytest.mark.parametrize(("prompts", "asked"), [("50", 16), ("3", 3)])
def test_quick(lab: FakeLab, prompts: str, asked: int) -> None:
    identity("--prompts", prompts, "--quick")
    assert len(lab.asked[0]) == asked


def test_model_draft_and_dtype(lab: FakeLab) -> None:
    identity("--model", "m", "--draft", "layers:3", "--dtype", "bfloat16")
    assert (lab.common["model"], lab.common["dtype"]) == ("m", "bfloat16")
    assert lab.started["draft"] == {"draft": "layers:3"}


def test_quantize(lab: FakeLab) -> None:
    identity("--quantize", "int8")
    assert (lab.common["dtype"], lab.common["quantize"]) == ("auto", "int8")


def test_normal_excuses_what_the_reference_explains(lab: FakeLab) -> None:
    strict = identity()
    assert strict.exit_code == 1
    assert "1 wrong" in strict.stdout
    excused = identity("--normal")
    assert lab.common["batch_invariant"] is False
    assert excused.exit_code == 0
    assert "1 near ties, 0 wrong" in excused.stdout.replace("\n", " ")


@pytest.mark.usefixtures("lab")
def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    result = identity("--json")
    report = json.loads(result.stdout)
    assert (report["wrong"], report["total"], report["acceptance"]) == (1, 1, 0.75)
    assert "FAILED" in result.stderr
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(identity().stdout)
