"""``starsd bench speed`` with real services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starsd.bench.speed import Setup, measure
from starsd.check.lab import Lab, Service
from starsd.cli.main import app

STEP_US = 10_000
SETUP = Setup(
    model="scripted",
    draft="self",
    dtype="float32",
    quantize="none",
    depth=3,
    nodes=0,
    wait_budget=12.0,
    invariant=True,
    others=False,
    prompts=3,
    max_tokens=40,
    temperature=0.8,
    repeats=1,
)


class ScriptedLab(Lab):
    """Services whose models need no torch; the hubs' model is wrong now and then."""

    def start(self, name: str, kind: str, **settings: Any) -> Service:
        model = "DriftModel" if kind == "draft" else "HashModel"
        if kind == "target":
            settings["depth_control"] = "fixed"  # a step of this draft takes as long as a target's
        return super().start(name, kind, scripted=f"tests.scripted:{model}", **settings)


def test_scripted_star(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_STEP_S", str(STEP_US / 1e6))
    with ScriptedLab(log_level="warning", heartbeat_s=0.2, pod_ttl_s=2.0) as lab:
        result, timed = measure(SETUP, lab)
        assert len(lab.services) == 5
    assert (result.identical, result.different, result.total) == (3, 0, 3)
    assert [len(one.answer.ids) for one in timed] == [40] * 9
    assert result.acceptance is not None
    assert 0.2 < result.acceptance < 0.95
    assert result.tokens_per_round is not None
    assert 1.2 < result.tokens_per_round < 3.9
    first, second, third = result.acceptance_by_position
    assert 1 > first > second > third > 0
    times = result.round_us
    assert times["draft"] > 2 * STEP_US  # three steps, fewer at an answer's end
    assert times["verify"] > STEP_US
    assert min(times["queue"], times["network"], times["rest"]) >= 0
    assert times["total"] == pytest.approx(sum(times.values()) - times["total"])
    plain = [one for one in timed if one.variant == "plain"]
    assert {(one.answer.stats.rounds, one.answer.stats.fallbacks) for one in plain} == {(0, 0)}
    assert all(one.answer.stats.rounds for one in timed if one.variant == "colocated")
    assert result.plain_tokens_per_s < 1e6 / STEP_US


@pytest.mark.real
@pytest.mark.timeout(600)  # five models are loaded, one after the other
def test_default_model(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ("--prompts", "1", "--max-tokens", "24", "--json", "--out", str(out))
    ran = CliRunner().invoke(app, ["bench", "speed", *options])
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["identical"] + found["different"] == found["total"] == 1
    assert found["tokens_per_round"] > 1.3  # by the draft that comes with us
    assert min(found["plain_tokens_per_s"], found["star_tokens_per_s"]) > 0
    assert 0 < found["round_us"]["draft"] < found["round_us"]["verify"]
    assert len(json.loads(out.read_text())["answers"]) == 3
