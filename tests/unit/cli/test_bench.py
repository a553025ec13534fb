"""The options of ``starsd bench speed``, with a measurement that only remembers its setup."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.bench import record
from starsd.bench.speed import Setup
from starsd.bench.speed_result import Result as Measured
from starsd.bench.speed_result import Timed, summarise
from starsd.cli import bench, main
from starsd.errors import UnavailableError
from tests.unit.bench.answers import COUNTS, MACHINE, trio
from tests.unit.bench_peers.test_result import made


class FakeMeasure:
    """Answers with made-up numbers; ``setup`` is what it was asked."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self.different = 0
        self.error: Exception | None = None

    def __call__(
        self, setup: Setup, _: Any, tick: Callable[[], None]
    ) -> tuple[Measured, list[Timed]]:
        if self.error is not None:
            raise self.error
        self.setup = setup
        tick()
        answers = trio(10, 10, 20)
        result = summarise(answers, COUNTS, {}, MACHINE, batch_invariant=setup.batch_invariant)
        return replace(result, different=self.different), answers


class FakeLab:
    def __init__(self, **_: Any) -> None: ...

    def __enter__(self) -> FakeLab:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> FakeMeasure:
    fake = FakeMeasure()
    monkeypatch.setattr(bench, "measure", fake)
    monkeypatch.setattr(bench, "Lab", FakeLab)
    return fake


def speed(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["bench", "speed", *options])


DEFAULTS = Setup(
    model="smollm2-135m-instruct",
    draft="auto",
    dtype="auto",
    quantize="none",
    depth=6,
    nodes=15,
    wait_budget=1.0,
    invariant=False,
    others=False,
    prompts=24,
    max_tokens=128,
    temperature=0.0,
    repeats=1,
)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--model", "m"), {"model": "m"}),
        (("--draft", "layers:9"), {"draft": "layers:9", "wait_budget": 21.0}),
        (("--draft", "a/model"), {"draft": "a/model"}),
        (("--dtype", "bfloat16"), {"dtype": "bfloat16"}),
        (("--quantize", "int4"), {"quantize": "int4"}),
        (("--depth", "5"), {"depth": 5}),
        (("--nodes", "0"), {"nodes": 0}),
        (("--others",), {"others": True}),
        (("--wait-budget", "2.5"), {"wait_budget": 2.5}),
        (("--wait-budget", "0"), {"wait_budget": 0.0}),
        (("--invariant",), {"invariant": True}),
        (("--prompts", "0"), {"prompts": 0}),
        (("--max-tokens", "16"), {"max_tokens": 16}),
        (("--temperature", "0.7"), {"temperature": 0.7}),
        (("--repeats", "3"), {"repeats": 3}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options(measured: FakeMeasure, options: tuple[str, ...], changes: dict[str, Any]) -> None:
    """model, draft, dtype, quantize, depth, wait_budget, invariant, prompts and the rest."""
    assert speed(*options).exit_code == 0
    assert measured.setup == replace(DEFAULTS, **changes)


@pytest.mark.usefixtures("measured")
def test_tables_are_for_people() -> None:
    shown = speed().stdout
    assert "target and draft on one core" in shown
    assert "star_over_plain 2.000, half of the answers within 2.000 to 2.000" in shown


@pytest.mark.usefixtures("measured")
def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    result = speed("--json")
    found = json.loads(result.stdout)
    assert found["star_over_plain"] == 2
    assert found["round_us"]["draft"] == 10_000
    assert found.keys() >= {
        *("star_over_colocated", "tokens_per_round", "acceptance_by_position", "ttft_ms"),
        *("plain_tokens_per_s", "colocated_tokens_per_s", "star_tokens_per_s"),
        *("identical", "total", "machine", "settings"),
    }
    assert "target and draft on one core" in result.stderr


@pytest.mark.usefixtures("measured")
def test_out_has_every_answer(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert speed("--out", str(path)).exit_code == 0
    found = json.loads(path.read_text())
    assert found["star_over_plain"] == 2
    assert [one["variant"] for one in found["answers"]] == ["star", "plain", "colocated"]


def test_out_is_tried_before_anything_is_measured(measured: FakeMeasure, tmp_path: Path) -> None:
    result = speed("--out", str(tmp_path / "absent" / "out.json"))
    assert (result.exit_code, measured.setup) == (2, None)
    assert "cannot write" in result.stderr


@pytest.mark.parametrize(
    ("options", "code"), [((), 0), (("--invariant",), 1), (("--quantize", "int8"), 1)]
)
def test_a_differing_answer_fails_where_none_may(
    measured: FakeMeasure, options: tuple[str, ...], code: int
) -> None:
    measured.different = 1
    result = speed(*options)
    assert result.exit_code == code
    assert ("FAILED" in result.stdout) == bool(code)


def test_an_error_is_told(measured: FakeMeasure) -> None:
    measured.error = UnavailableError("star ended: no such model")
    result = speed()
    assert result.exit_code == 1
    assert "star ended: no such model" in result.stderr


def test_report_prints_the_files_sections(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    record.write(path, "peers", made(), {})
    done = CliRunner().invoke(main.app, ["bench", "report", str(path)])
    assert done.exit_code == 0
    assert done.stdout.startswith("## `starsd bench peers`")


def test_report_of_no_result_is_told() -> None:
    done = CliRunner().invoke(main.app, ["bench", "report", "absent.json"])
    assert done.exit_code == 2
    assert "absent.json" in done.stderr
