"""Which runners are opened for what, with none that computes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starsd.bench.engine import answers, run
from starsd.bench.engine.hf import EagerBatch
from starsd.bench.engine.run import measure
from starsd.bench.engine.setup import SUBJECTS, Setup, check
from starsd.errors import ConfigError
from starsd.settings.target import TargetSettings
from tests.scripted import ByteTokenizer, HashModel, ScriptedRunner
from tests.unit.bench_engine.support import SETUP, Clock, CostlyRunner

CORE = min(os.sched_getaffinity(0))
ENGINE = replace(SETUP, cores=(CORE,))


class FakeModel:
    def __init__(self, settings: TargetSettings) -> None:
        self.folder = Path(settings.model)

    def tokenizer(self) -> ByteTokenizer:
        return ByteTokenizer()


class HashRunner(ScriptedRunner):
    cache_bytes = 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[TargetSettings]:
    """Settings of the runners that were opened."""
    seen: list[TargetSettings] = []
    clock = Clock()

    def open_runner(settings: TargetSettings) -> CostlyRunner:
        seen.append(settings)
        slots, length = settings.max_sequences, settings.max_length
        return CostlyRunner(clock, slots=slots, max_length=length)

    monkeypatch.setattr(run, "open_runner", open_runner)
    monkeypatch.setattr(run, "PretrainedModel", FakeModel)
    return seen


def precision_of(settings: TargetSettings) -> str:
    return settings.dtype if settings.quantize == "none" else settings.quantize


def test_precisions_cores_and_model(opened: list[TargetSettings]) -> None:
    result, raw = measure(ENGINE, lambda _: None)
    assert [precision_of(one) for one in opened] == ["bfloat16", "int8"]
    assert {(one.model, one.threads, one.max_sequences) for one in opened} == {("m", 1, 64)}
    assert result.steps is not None
    assert [one.precision for one in result.steps] == ["bfloat16", "int8"]
    assert result.machine["cores_used"] == (CORE,)
    assert result.machine["cores_allowed"] == len(os.sched_getaffinity(0))
    assert len(raw["times_s"]["steps"]) == 10
    assert all(len(times) == ENGINE.repeats for times in raw["times_s"]["steps"].values())
    assert CORE in os.sched_getaffinity(0)


@pytest.mark.parametrize("subject", sorted(set(SUBJECTS) - {"throughput", "flips"}))
def test_only_what_is_wanted_is_measured(opened: list[TargetSettings], subject: str) -> None:
    said: list[str] = []
    result, _ = measure(replace(ENGINE, only=(subject,)), said.append)
    fields = ("steps", "sampling_us", "contexts", "invariance", "throughput", "flips", "shapes")
    measured = [name for name in fields if getattr(result, name) is not None]
    assert measured == ["sampling_us" if subject == "sampling" else subject]
    assert said == [subject]
    assert set(result.seconds) == {subject}


def test_contexts_have_a_slot_of_that_length(opened: list[TargetSettings]) -> None:
    result, _ = measure(replace(ENGINE, only=("contexts",)), lambda _: None)
    assert {(one.max_sequences, one.max_length) for one in opened} == {(1, 128)}
    assert result.contexts is not None
    assert [list(one.step_ms) for one in result.contexts] == [["64", "128"]] * 2


def test_invariance_is_of_torch(opened: list[TargetSettings]) -> None:
    measure(replace(ENGINE, only=("invariance",)), lambda _: None)
    assert [(one.dtype, one.compiled, one.batch_invariant) for one in opened] == [
        ("float32", False, False),
        ("float32", False, True),
        ("bfloat16", False, False),
        ("bfloat16", False, True),
    ]


def test_runners_are_shared(opened: list[TargetSettings]) -> None:
    measure(replace(ENGINE, only=("steps", "sampling")), lambda _: None)
    assert len(opened) == 2


def test_throughput_is_against_transformers(
    opened: list[TargetSettings], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(EagerBatch, "decode", lambda self, count: steps.append(count))
    setup = replace(ENGINE, only=("throughput",), model=str(tiny_model))
    monkeypatch.setattr("starsd.bench.engine.throughput.throughput", lambda *found: found)
    result, raw = measure(setup, lambda _: None)
    found: Any = result.throughput
    assert list(found[0]) == ["bfloat16", "int8", "transformers"]
    assert found[1] == 1
    assert len(steps) == 1 + ENGINE.repeats
    assert set(raw["times_s"]["throughput"]) == {"bfloat16", "int8", "transformers"}


def test_flips_compare_with_float32_on_its_answers(
    opened: list[TargetSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARSD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(answers, "LENGTH", 700)

    def open_runner(settings: TargetSettings) -> HashRunner:
        opened.append(settings)
        longer = settings.model_copy(update={"max_length": 700})
        return HashRunner(HashModel(longer))

    monkeypatch.setattr(run, "open_runner", open_runner)
    result, _ = measure(replace(ENGINE, only=("flips",), tokens=150), lambda _: None)
    assert [precision_of(one) for one in opened] == ["float32", "bfloat16", "int8", "bfloat16"]
    assert [one.compiled for one in opened] == [True, True, True, False]
    assert result.flips is not None
    assert [(one.precision, one.flips) for one in result.flips] == [
        ("float32", 0),
        ("bfloat16", 0),
        ("int8", 0),
    ]
    assert result.flips[0].positions >= 150
    assert result.shapes is not None
    (file,) = (tmp_path / "bench").iterdir()
    assert file.name == "answers-scripted-HashModel.jsonl"


@pytest.mark.parametrize(
    "bad", [{"cores": (4095,)}, {"contexts": (8,)}, {"cores": ()}], ids=["core", "context", "none"]
)
def test_what_cannot_be_is_told_first(opened: list[TargetSettings], bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        measure(replace(ENGINE, **bad), lambda _: None)
    assert opened == []


def test_a_good_setup() -> None:
    setup: Setup = ENGINE
    check(setup)
