"""The options of ``starsd bench draft``, with a measurement that only remembers its setup."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.bench.draft.result import Result as Measured
from starsd.bench.draft.setup import Setup
from starsd.cli import drafts, main
from starsd.errors import ConfigError
from tests.unit.bench_draft.results import made

DEFAULTS = Setup(
    model="smollm2-135m-instruct",
    drafts=("auto", "ngram"),
    dtype="auto",
    quantize="none",
    temperatures=(0.0, 1.0),
    prompts=24,
    max_tokens=128,
    depth=6,
    nodes=15,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    seen: list[Setup] = []

    def measure(setup: Setup, say: Any) -> tuple[Measured, dict[str, Any]]:
        seen.append(setup)
        say("costs")
        return made(), {"times_s": {"temperature 0": {"target, plain": [0.01, 0.02]}}}

    monkeypatch.setattr(drafts, "measure", measure)
    return seen


def run(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["bench", "draft", *options])


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--model", "m"), {"model": "m"}),
        (("--drafts", "self,layers:2"), {"drafts": ("self", "layers:2")}),
        (("--dtype", "float32"), {"dtype": "float32"}),
        (("--quantize", "int8"), {"quantize": "int8"}),
        (("--temperatures", "0.7"), {"temperatures": (0.7,)}),
        (("--prompts", "0"), {"prompts": 0}),
        (("--max-tokens", "9"), {"max_tokens": 9}),
        (("--depth", "3"), {"depth": 3}),
        (("--nodes", "0"), {"nodes": 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options(asked: list[Setup], options: tuple[str, ...], changes: dict[str, Any]) -> None:
    """model, drafts, dtype, quantize, temperatures, prompts, max-tokens, depth, nodes."""
    done = run(*options)
    assert (done.exit_code, asked) == (0, [replace(DEFAULTS, **changes)])
    assert "A plain step takes 20.0 ms" in done.stdout
    assert done.stderr == "costs\n"


@pytest.mark.parametrize(
    "options",
    [("--temperatures", "warm"), ("--nodes", "16"), ("--depth", "0"), ("--max-tokens", "2")],
)
def test_bad_options(asked: list[Setup], options: tuple[str, str]) -> None:
    assert (run(*options).exit_code, asked) == (2, [])


@pytest.mark.usefixtures("asked")
def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    done = run("--json")
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["drafts"][0]["tree"]["tokens"] == 3
    assert found["drafts"][0]["hits"][1] == {
        "depth": 1,
        "rank": 2,
        "proposed": 1,
        "reached": 1,
        "hits": 1,
    }
    assert "ngram" in done.stderr


@pytest.mark.usefixtures("asked")
def test_out_has_every_time(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run("--out", str(path)).exit_code == 0
    found = json.loads(path.read_text())
    assert found["times_s"]["temperature 0"]["target, plain"] == [0.01, 0.02]
    assert (found["kind"], found["left_out"]) == ("draft", 3)


def test_out_is_tried_before_anything_is_measured(asked: list[Setup], tmp_path: Path) -> None:
    done = run("--out", str(tmp_path / "absent" / "out.json"))
    assert (done.exit_code, asked) == (2, [])


def test_an_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ConfigError("STARSD_DRAFT='layers:99': the model has 30 layers")

    monkeypatch.setattr(drafts, "measure", fail)
    done = run("--drafts", "layers:99")
    assert done.exit_code == 2
    assert "the model has 30 layers" in done.stderr
