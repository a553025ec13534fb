"""The options of ``starsd bench engine``, with a measurement that only remembers its setup."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.bench.engine.result import Result as Measured
from starsd.bench.engine.setup import Setup
from starsd.bench.machine import allowed_cores
from starsd.cli import engine, main
from starsd.errors import ConfigError
from tests.unit.bench_engine.results import made

DEFAULTS = Setup(
    model="smollm2-135m-instruct",
    precisions=("float32", "bfloat16", "int8", "int4"),
    cores=tuple(allowed_cores()[:1]),
    only=("steps", "throughput", "sampling", "flips", "contexts", "invariance"),
    contexts=(512, 2048, 8192),
    tokens=10_000,
    repeats=7,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Setup]:
    seen: list[Setup] = []

    def measure(setup: Setup, say: Any) -> tuple[Measured, dict[str, Any]]:
        seen.append(setup)
        say("steps")
        return made(), {"times_s": {"steps": {"int8, 1 of one": [0.01, 0.02]}}}

    monkeypatch.setattr(engine, "measure", measure)
    return seen


def run(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["bench", "engine", *options])


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--precisions", "int8"), {"precisions": ("int8",)}),
        (("--cores", "0,1"), {"cores": (0, 1)}),
        (("--only", "steps,flips"), {"only": ("steps", "flips")}),
        (("--contexts", "100"), {"contexts": (100,)}),
        (("--tokens", "9"), {"tokens": 9}),
        (("--repeats", "2"), {"repeats": 2}),
        (("--model", "m"), {"model": "m"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options(asked: list[Setup], options: tuple[str, ...], changes: dict[str, Any]) -> None:
    """precisions, cores, only, contexts, tokens, repeats, model."""
    done = run(*options)
    assert (done.exit_code, asked) == (0, [replace(DEFAULTS, **changes)])
    assert "missed: int8: 16 rows of one take 1.20 of 1 row" in done.stdout
    assert done.stderr == "steps\n"


def test_no_flips(asked: list[Setup]) -> None:
    """--flips/--no-flips."""
    run("--no-flips")
    run("--flips")
    assert [("flips" in one.only, len(one.only)) for one in asked] == [(False, 5), (True, 6)]


@pytest.mark.parametrize(
    "options",
    [
        ("--precisions", "int3"),
        ("--cores", "a"),
        ("--only", "all"),
        ("--contexts", "8k"),
        ("--tokens", "0"),
        ("--repeats", "0"),
    ],
)
def test_bad_options(asked: list[Setup], options: tuple[str, str]) -> None:
    assert (run(*options).exit_code, asked) == (2, [])


@pytest.mark.usefixtures("asked")
def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    done = run("--json")
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["throughput"]["over_hf"] == {"bfloat16": 2.5}
    assert found["steps"][1]["over_one"]["16 of one"] == 1.2
    assert "int8 " in done.stderr


@pytest.mark.usefixtures("asked")
def test_out_has_every_time(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run("--out", str(path)).exit_code == 0
    found = json.loads(path.read_text())
    assert found["times_s"]["steps"]["int8, 1 of one"] == [0.01, 0.02]
    assert found["shapes"]["flips"] == 16


def test_out_is_tried_before_anything_is_measured(asked: list[Setup], tmp_path: Path) -> None:
    done = run("--out", str(tmp_path / "absent" / "out.json"))
    assert (done.exit_code, asked) == (2, [])


def test_an_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ConfigError("cores [9]: allowed here are [0, 1]")

    monkeypatch.setattr(engine, "measure", fail)
    done = run("--cores", "9")
    assert done.exit_code == 2
    assert "allowed here are [0, 1]" in done.stderr
