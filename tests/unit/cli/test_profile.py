"""The options of ``starsd bench profile``, with a measurement that only remembers its setup."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.bench.profile import Setup
from starsd.bench.profile_result import Result as Measured
from starsd.bench.profile_result import summarise
from starsd.cli import main, profile
from starsd.errors import UnavailableError
from tests.unit.bench.answers import MACHINE
from tests.unit.bench.profiles import windows
from tests.unit.cli.test_bench import FakeLab

DEFAULTS = Setup(
    model="smollm2-135m-instruct",
    draft="auto",
    dtype="auto",
    quantize="none",
    wait_budget=1.0,
    batches=(1, 16),
    samplings=("greedy", "filtered", "unfiltered"),
    tokens=96,
    temperature=1.0,
    top_p=0.95,
    top_k=50,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    seen: list[Setup] = []

    def measure(setup: Setup, lab: Any, tick: Callable[[], None]) -> Measured:
        seen.append(setup)
        tick()
        return summarise(windows(), {}, MACHINE)

    monkeypatch.setattr(profile, "measure", measure)
    monkeypatch.setattr(profile, "Lab", FakeLab)
    return seen


def run(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["bench", "profile", *options])


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--model", "m"), {"model": "m"}),
        (("--draft", "layers:9"), {"draft": "layers:9", "wait_budget": 21.0}),
        (("--draft", "none"), {"draft": "none"}),
        (("--dtype", "bfloat16"), {"dtype": "bfloat16"}),
        (("--quantize", "int4"), {"quantize": "int4"}),
        (("--batch", "8"), {"batches": (8,)}),
        (("--sampling", "unfiltered,greedy"), {"samplings": ("unfiltered", "greedy")}),
        (("--tokens", "16"), {"tokens": 16}),
        (("--temperature", "0.7"), {"temperature": 0.7}),
        (("--top-p", "0.8"), {"top_p": 0.8}),
        (("--top-k", "0"), {"top_k": 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options(asked: list[Setup], options: tuple[str, ...], changes: dict[str, Any]) -> None:
    """model, draft, dtype, quantize, batch, sampling, tokens, temperature, top_p, top_k."""
    done = run(*options)
    assert (done.exit_code, asked) == (0, [replace(DEFAULTS, **changes)])
    assert "Step of the target, batch 16" in done.stdout
    assert "3 of 7 bars met" in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--batch", "0"),
        ("--sampling", "beam"),
        ("--tokens", "513"),
        ("--temperature", "0"),
        ("--top-p", "2"),
    ],
)
def test_bad_options(asked: list[Setup], options: tuple[str, str]) -> None:
    done = run(*options)
    assert (done.exit_code, asked) == (2, [])


@pytest.mark.usefixtures("asked")
def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    done = run("--json")
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["profiles"][0]["us"]["matrices"] == 80_000
    assert {bar["met"] for bar in found["bars"]} == {True, False}
    assert "Step of the hub" in done.stderr


@pytest.mark.usefixtures("asked")
def test_out_has_the_result(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run("--out", str(path)).exit_code == 0
    assert len(json.loads(path.read_text())["profiles"]) == 4


def test_out_is_tried_before_anything_is_measured(asked: list[Setup], tmp_path: Path) -> None:
    done = run("--out", str(tmp_path / "absent" / "out.json"))
    assert (done.exit_code, asked) == (2, [])


def test_an_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise UnavailableError("target ended: no such model")

    monkeypatch.setattr(profile, "measure", fail)
    monkeypatch.setattr(profile, "Lab", FakeLab)
    done = run()
    assert done.exit_code == 1
    assert "target ended: no such model" in done.stderr
