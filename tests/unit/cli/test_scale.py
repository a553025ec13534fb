"""The options of ``starsd bench scale`` and ``bench calibrate``, with measurements that only
remember what they were asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.bench.scale import calibration
from starsd.bench.scale import result as results
from starsd.bench.scale.models import Source
from starsd.bench.scale.setup import MODES, TIERS, Setup
from starsd.bench.scale.world import World
from starsd.cli import main, scale
from starsd.errors import ConfigError
from starsd.plan.star import Mode
from tests.unit.bench_scale.support import make_world
from tests.unit.bench_scale.test_summary import result

DEFAULTS = Setup(
    model="smollm2-135m-instruct",
    draft="auto",
    dtype="auto",
    quantize="none",
    tiers=TIERS,
    modes=MODES,
    targets=(1, 2, 3, 4, 6, 8, 12, 16),
    full_at=4,
    verify_ms=100.0,
    quick=False,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Setup]:
    seen: list[Setup] = []

    def measure(setup: Setup, folder: Path, say: Any) -> results.Result:
        folder.mkdir(exist_ok=True)
        seen.append(setup)
        say("8 targets start")
        return result()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale, "measure", measure)
    return seen


def run(*options: str, command: str = "scale") -> Result:
    return CliRunner().invoke(main.app, ["bench", command, *options])


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--model", "m"), {"model": "m"}),
        (("--draft", "layers:2"), {"draft": "layers:2"}),
        (("--dtype", "float32"), {"dtype": "float32"}),
        (("--quantize", "int8"), {"quantize": "int8"}),
        (("--tiers", "real"), {"tiers": ("real",)}),
        (("--modes", "plain,fifo"), {"modes": (Mode.PLAIN, Mode.FIFO)}),
        (("--targets", "1,32"), {"targets": (1, 32)}),
        (("--full-at", "0"), {"full_at": 0}),
        (("--verify-ms", "50"), {"verify_ms": 50.0}),
        (
            ("--quick",),
            {"quick": True, "targets": (1, 4, 16), "tiers": ("emulated", "simulated")},
        ),
        (
            ("--quick", "--tiers", "real"),
            {"quick": True, "targets": (1, 4, 16), "tiers": ("real",)},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options(asked: list[Setup], options: tuple[str, ...], changes: dict[str, Any]) -> None:
    """model, draft, dtype, quantize, tiers, modes, targets, full-at, verify-ms, quick."""
    done = run(*options)
    assert (done.exit_code, asked) == (0, [replace(DEFAULTS, **changes)])
    assert "batched_over_fifo" in done.stdout
    assert done.stderr == "8 targets start\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--tiers", "imagined"),
        ("--modes", "colocated"),
        ("--targets", "0"),
        ("--full-at", "-1"),
        ("--verify-ms", "0"),
    ],
)
def test_bad_options(asked: list[Setup], options: tuple[str, str]) -> None:
    assert (run(*options).exit_code, asked) == (2, [])


@pytest.mark.usefixtures("asked")
def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    (line,) = run("--json").stdout.splitlines()
    found = json.loads(line)
    for name in (
        "unforced_idle",
        "fifo_idle_saturated",
        "batched_over_fifo_saturated",
        "runahead_wait_removed",
        "jain",
        "depth_regret",
        "model_error",
        "s_over_v",
    ):
        assert name in found
    assert found["batched_over_fifo_saturated"] == 3.2


@pytest.mark.usefixtures("asked")
def test_out_has_result_and_plots(tmp_path: Path) -> None:
    assert run("--out", str(tmp_path / "run")).exit_code == 0
    assert json.loads((tmp_path / "run" / "scale.json").read_text())["kind"] == "scale"
    assert (tmp_path / "run" / "throughput.png").exists()


def test_a_wrong_text_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scale, "measure", lambda *_: replace(result(), mismatched=1))
    assert run("--out", str(tmp_path)).exit_code == 1


def test_without_matplotlib_nothing_is_measured(
    asked: list[Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ConfigError("a plot needs matplotlib: pip install matplotlib")

    monkeypatch.setattr(scale, "check_installed", missing)
    assert (run().exit_code, asked) == (2, [])


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    seen: list[Source] = []

    def record(source: Source, say: Any) -> World:
        seen.append(source)
        return make_world()

    monkeypatch.setattr(calibration, "record", record)
    monkeypatch.setattr(calibration, "with_messages", lambda world, say: world)
    return seen


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ((), {}),
        (("--model", "m"), {"model": "m"}),
        (("--draft", "layers:2"), {"draft": "layers:2"}),
        (("--dtype", "float32"), {"dtype": "float32"}),
        (("--quantize", "int8"), {"quantize": "int8"}),
        (("--prompts", "3"), {"prompts": 3}),
        (("--max-tokens", "16"), {"max_tokens": 16}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_calibrate_options(
    recorded: list[Source], options: tuple[str, ...], changes: dict[str, Any]
) -> None:
    """model, draft, dtype, quantize, prompts, max-tokens."""
    defaults = Source("smollm2-135m-instruct", "auto", "auto", "none", 24, 96)
    done = run(*options, command="calibrate")
    assert (done.exit_code, recorded) == (0, [replace(defaults, **changes)])
    assert "verify, by rows" in done.stdout


@pytest.mark.usefixtures("recorded")
def test_calibrate_json_and_out(tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    (line,) = run("--json", "--out", str(out), command="calibrate").stdout.splitlines()
    found, kept = json.loads(line), json.loads(out.read_text())
    assert found["costs"]["verify"]["seconds"] == [0.02, 0.0202]
    assert kept == {"kind": "calibrate", **found}
    plan = CliRunner().invoke(main.app, ["plan", "--costs", str(out), "--targets", "2", "--json"])
    assert plan.exit_code == 0


def test_calibrate_tries_its_file_first(recorded: list[Source], tmp_path: Path) -> None:
    done = run("--out", str(tmp_path / "absent" / "costs.json"), command="calibrate")
    assert (done.exit_code, recorded) == (2, [])
