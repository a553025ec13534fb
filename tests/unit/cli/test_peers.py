"""The options of ``starsd bench peers``, with a comparison that only remembers them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from starsd.bench.machine import allowed_cores
from starsd.bench.peers.options import Options
from starsd.bench.peers.result import PeersResult
from starsd.cli import main, peers
from starsd.errors import ConfigError
from tests.unit.bench_peers.test_result import made


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    seen: list[Options] = []

    def fake(options: Options, say: object) -> PeersResult:
        seen.append(options)
        return made(left_out={"openvino": "no such wheel"})

    monkeypatch.setattr(peers, "run", fake)
    return seen


def compare(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["bench", "peers", *options])


def test_defaults(given: list[Options]) -> None:
    assert compare().exit_code == 0
    assert given == [Options(cores=tuple(allowed_cores()[:1]))]


def test_options(given: list[Options]) -> None:
    done = compare(
        *("--only", "hf,llama", "--ours", "int4", "--cores", "0,1", "--draft", "layers:2"),
        *("--model", "folder", "--prompts", "3", "--max-tokens", "7", "--repeats", "5"),
        *("--envs", "there", "--out", "raw.json", "--plot", "bars.png"),
    )
    assert done.exit_code == 0
    assert given == [
        Options(
            cores=(0, 1),
            only=("hf", "llama"),
            ours=("int4",),
            draft="layers:2",
            wait_budget=21.0,
            model="folder",
            prompts=3,
            max_tokens=7,
            repeats=5,
            envs=Path("there"),
            out=Path("raw.json"),
            plot=Path("bars.png"),
        )
    ]


def test_table_and_remarks(given: list[Options]) -> None:
    said = compare().stdout
    assert "| vllm" in said
    assert "left out: openvino: no such wheel" in said
    assert given


def test_json_is_the_last_line_and_the_only_one_on_stdout(given: list[Options]) -> None:
    done = compare("--json")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["plain_over"]["vllm"] == {"1": 1.5, "8": 0.52632}
    assert "| vllm" in done.stderr
    assert given


def test_bad_cores_are_told(given: list[Options]) -> None:
    done = compare("--cores", "a")
    assert (done.exit_code, given) == (2, [])
    assert "--cores 'a': write it like 0 or 0,1" in done.stderr


def test_what_the_comparison_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: Options, say: object) -> PeersResult:
        raise ConfigError("a plot needs matplotlib")

    monkeypatch.setattr(peers, "run", refuse)
    done = compare("--plot", "bars.png")
    assert done.exit_code == 2
    assert "a plot needs matplotlib" in done.stderr
