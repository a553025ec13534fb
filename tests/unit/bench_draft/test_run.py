"""The whole, with scripted models and with a tiny real one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from starsd.bench.draft import run
from starsd.bench.draft.run import measure
from starsd.bench.engine.timing import Timer
from starsd.errors import ConfigError
from tests.unit.bench_draft.support import SETUP


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_SCRIPTED", "tests.scripted:HashModel")
    monkeypatch.setattr(run, "REPEATS", 2)


@pytest.mark.usefixtures("scripted")
def test_every_draft_at_every_temperature() -> None:
    said: list[str] = []
    setup = replace(SETUP, temperatures=(0.0, 1.0), max_tokens=16)
    result, raw = measure(setup, said.append)
    assert [(one.draft, one.temperature) for one in result.drafts] == [
        ("self", 0.0),
        ("self", 1.0),
        ("ngram", 0.0),
        ("ngram", 1.0),
    ]
    own, _, ngram, _ = result.drafts
    assert own.acceptance[0] == 1
    assert own.tree is not None
    assert (ngram.tree, ngram.chain.step_cost) == (None, None)
    assert [(one.temperature, one.answers, one.tokens) for one in result.targets] == [
        (0.0, 2, 32),
        (1.0, 2, 32),
    ]
    assert said[0] == "temperature 0: the target's 2 answers"
    assert len(said) == 8
    assert set(raw["times_s"]) == {"temperature 0", "temperature 1"}
    assert [len(times) for times in raw["times_s"]["temperature 1"].values()] == [2] * 5
    assert result.machine["cores_used"] == (min(os.sched_getaffinity(0)),)
    assert (result.clock, result.left_out) == ("processor", 0)
    assert result.settings["depth"] == 4


@pytest.mark.usefixtures("scripted")
def test_depth_prompts_and_nodes_are_kept_to() -> None:
    setup = replace(SETUP, depth=2, nodes=0, prompts=1)
    result, _ = measure(setup, lambda _: None)
    own = result.drafts[0]
    assert (len(own.acceptance), own.tree) == (2, None)
    assert own.chain.steps == (7 * 2 + 1) / 8  # in the last round one token is worth proposing
    assert result.targets[0].answers == 1


@pytest.mark.usefixtures("scripted")
def test_prompts_without_room_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "room", lambda drafts, target: 240)
    result, _ = measure(replace(SETUP, prompts=6), lambda _: None)
    assert (result.left_out + result.targets[0].answers, result.left_out > 0) == (6, True)


@pytest.mark.usefixtures("scripted")
def test_a_target_that_cannot_roll_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_SCRIPTED", "tests.scripted:GrowingModel")
    with pytest.raises(ConfigError, match="cannot roll back"):
        measure(SETUP, lambda _: None)


def test_a_tiny_model_and_its_first_layers(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REPEATS", 2)
    setup = replace(SETUP, model=str(tiny_model), drafts=("self", "layers:2"), temperatures=(0.7,))
    result, _ = measure(replace(setup, dtype="float32"), lambda _: None)
    own, layers = result.drafts
    assert own.acceptance[0] > 0.9 > layers.acceptance[0] > 0.1
    assert own.chain.tokens > layers.chain.tokens > 1
    assert own.chain.step_cost is not None
    assert layers.chain.step_cost is not None
    assert own.chain.speed > 0
    assert Timer(1, 2).kind == result.clock
