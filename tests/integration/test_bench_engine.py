"""``starsd bench engine`` with the real model."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from starsd.cli.main import app


@pytest.mark.real
@pytest.mark.timeout(300)
def test_default_model() -> None:
    options = ("--precisions", "int8", "--only", "steps,sampling,contexts", "--contexts", "64,512")
    ran = CliRunner().invoke(app, ["bench", "engine", *options, "--repeats", "3", "--json"])
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout)
    (steps,) = found["steps"]
    assert 0 < steps["ms"]["1 of one"] < steps["ms"]["1 of 64"]
    assert steps["over_one"]["16 of one"] < 16  # rows together take less than one by one
    assert steps["over_one"]["1 of 64"] < 64
    us = found["sampling_us"]
    assert 0 < us["greedy"] < us["unfiltered"]
    (contexts,) = found["contexts"]
    assert contexts["cache_mb"]["512"] == pytest.approx(8 * contexts["cache_mb"]["64"], rel=1e-3)
    assert set(contexts["step_ms"]) == {"64", "512"}
    assert found["clock"] == "processor"
