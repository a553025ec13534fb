"""``starsd bench profile`` with real services."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from starsd.bench.profile import Setup, measure
from starsd.check.lab import Lab, Service
from starsd.cli.main import app

STEP_US = 10_000
SETUP = Setup(
    model="scripted",
    draft="self",
    dtype="float32",
    quantize="none",
    wait_budget=15.0,
    batches=(3,),
    samplings=("greedy", "unfiltered"),
    tokens=20,
    temperature=1.0,
    top_p=1.0,
    top_k=0,
)


class ScriptedLab(Lab):
    """Services whose models need no torch, and never end."""

    def start(self, name: str, kind: str, **settings: Any) -> Service:
        return super().start(name, kind, **settings | {"scripted": "tests.scripted:HashModel"})


def test_scripted_star(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_STEP_S", str(STEP_US / 1e6))
    with ScriptedLab(log_level="warning", heartbeat_s=0.2, pod_ttl_s=2.0) as lab:
        result = measure(SETUP, lab)
    assert [(one.service, one.sampling) for one in result.profiles] == [
        ("target", "greedy"),
        ("hub", "greedy"),
        ("target", "unfiltered"),
        ("hub", "unfiltered"),
    ]
    for one in result.profiles:
        assert one.us["forward"] > STEP_US
        assert one.us["forward"] < one.step_us
        assert min(one.us[part] for part in ("sampling", "transport", "python")) > 0
        assert sum(one.us.values()) == pytest.approx(one.step_us)
    target, hub = result.profiles[:2]
    assert target.wait_us > STEP_US  # each round takes the hub several steps
    assert hub.sequences is not None
    assert 2 < hub.sequences <= 3


@pytest.mark.real
@pytest.mark.timeout(300)  # two models are loaded
def test_default_model() -> None:
    options = ("--quantize", "int8", "--draft", "layers:2", "--batch", "2", "--tokens", "8")
    ran = CliRunner().invoke(
        app, ["bench", "profile", *options, "--sampling", "unfiltered", "--json"]
    )
    assert ran.exit_code == 0, ran.stderr
    target, hub = json.loads(ran.stdout)["profiles"]
    for one in (target, hub):
        parts = ("matrices", "attention", "cache", "elementwise", "sampling", "transport", "python")
        assert set(one["us"]) == set(parts)
        assert min(one["us"].values()) > 0
        assert one["outside_matrices"] == pytest.approx(1 - one["share"]["matrices"], abs=1e-4)
    assert target["us"]["matrices"] > hub["us"]["matrices"]  # thirty layers, not two
