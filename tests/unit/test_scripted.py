"""The scripted models other tests rely on: they must notice what a KV cache would get wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from starsd.engine.interface import Model, Row, Runner, Tokenizer
from starsd.errors import EngineError, RequestError
from starsd.settings.model import ModelSettings
from tests.scripted import (
    EOS,
    ByteTokenizer,
    DriftModel,
    EchoModel,
    HashModel,
    ScriptedModel,
    ScriptedRunner,
    ScriptModel,
)


def build(cls: type[ScriptedModel]) -> ScriptedModel:
    values: dict[str, Any] = {"max_sequences": 2, "max_length": 64}
    return cls(ModelSettings(**values))


@pytest.fixture
def runner() -> ScriptedRunner:
    return build(HashModel).runner()


def answer(cls: type[ScriptedModel], content: str) -> str:
    """Greedy answer; the whole conversation token by token in slot 1."""
    model = build(cls)
    runner, tokenizer = model.runner(), model.tokenizer()
    text = tokenizer.encode_chat([{"role": "user", "content": content}])
    stream, start, said = tokenizer.text_stream(), 0, ""
    while text[-1] != EOS:
        logits = runner.forward([Row(1, text[start:], start)])[0]
        start = len(text)
        text.append(int(logits[-1].argmax()))
        said += stream.push(text[-1])
    return said + stream.flush()


def test_protocols() -> None:
    model: Model = build(EchoModel)
    runner: Runner = model.runner()
    tokenizer: Tokenizer = model.tokenizer()
    assert runner.vocab_size == tokenizer.vocab_size


def test_echo() -> None:
    assert answer(EchoModel, "héllo 😀") == "héllo 😀"


def test_script(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(ScriptModel, "who?") == ScriptModel.text
    monkeypatch.setenv("SCRIPTED_TEXT", "other")
    assert answer(ScriptModel, "who?") == "other"


def test_chunks_and_rollback_change_nothing(runner: ScriptedRunner) -> None:
    whole = runner.forward([Row(0, [1, 2, 3, 4, 5], 0, want=5)])[0]
    runner.forward([Row(1, [1, 2, 9, 9], 0)])
    part = runner.forward([Row(1, [3, 4, 5], 2, want=3)])[0]
    np.testing.assert_array_equal(part, whole[2:])


def test_history_matters(runner: ScriptedRunner) -> None:
    one, other = runner.forward([Row(0, [1, 2, 3], 0), Row(1, [9, 2, 3], 0)])
    assert not np.array_equal(one, other)


def test_tree_equals_chains(runner: ScriptedRunner) -> None:
    runner.forward([Row(0, [1], 0), Row(1, [1], 0)])
    tree = runner.forward([Row(0, [5, 6, 7, 8], 1, want=4, parents=[-1, 0, 0, 2])])[0]
    chain = runner.forward([Row(1, [5, 7, 8], 1, want=3)])[0]
    np.testing.assert_array_equal(tree[[0, 2, 3]], chain)
    runner.compact(0, 1, [0, 2, 3])
    assert runner.held[0] == runner.held[1]


@pytest.mark.parametrize(
    "rows",
    [
        [Row(0, [1], 1)],
        [Row(0, [], 0)],
        [Row(0, [260], 0)],
        [Row(0, [1] * 65, 0)],
        [Row(0, [1], 0), Row(0, [1], 0)],
    ],
    ids=["gap", "empty", "vocabulary", "length", "shared slot"],
)
def test_mistakes_raise(runner: ScriptedRunner, rows: list[Row]) -> None:
    with pytest.raises(EngineError):
        runner.forward(rows)


def test_drift_is_wrong_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    right, drift = build(HashModel), build(DriftModel)
    histories = [[i, i + 1] for i in range(200)]
    same = [np.array_equal(right.logits(h), drift.logits(h)) for h in histories]
    assert 0.6 < np.mean(same) < 0.8
    monkeypatch.setenv("SCRIPTED_WRONG", "1")
    assert not np.array_equal(right.logits([1]), drift.logits([1]))


def test_step_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setenv("SCRIPTED_STEP_S", "0.25")
    monkeypatch.setattr("time.sleep", slept.append)
    build(EchoModel).runner().forward([Row(0, [1], 0)])
    assert slept == [0.25]


def test_text_stream_holds_incomplete_characters() -> None:
    stream = ByteTokenizer().text_stream()
    assert [stream.push(byte) for byte in "😀".encode()] == ["", "", "", "😀"]
    assert stream.push(0xF0) == ""
    assert stream.flush() == "�"
    assert stream.push(0xFF) == "�"


def test_unknown_role() -> None:
    with pytest.raises(RequestError, match="wizard"):
        ByteTokenizer().encode_chat([{"role": "wizard", "content": "x"}])


def test_no_torch() -> None:
    code = "import sys, tests.scripted; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
