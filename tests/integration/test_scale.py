"""An emulated star of real services, and the command with scripted models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starsd.bench.scale import counters, point, run, star
from starsd.bench.scale.calibration import with_messages
from starsd.bench.scale.emulated import stretched
from starsd.bench.scale.point import Point, measure
from starsd.bench.scale.setup import DEPTH
from starsd.bench.scale.star import EmulatedStar
from starsd.bench.scale.world import World, write
from starsd.check.lab import Lab
from starsd.cli.main import app
from starsd.plan.star import Mode
from tests.unit.bench_scale.support import SETUP, make_world

pytestmark = pytest.mark.timeout(300)
WORLD = make_world()
SLOW = stretched(WORLD, replace(SETUP, verify_ms=100.0, full_at=8))


def test_targets_replay_their_texts_with_every_hub(tmp_path: Path) -> None:
    file = tmp_path / "world"
    write(SLOW, file)
    with Lab(log_level="warning", heartbeat_s=0.2, pod_ttl_s=5.0) as lab:
        emulated = EmulatedStar(lab)
        first, second = emulated.add_targets([file, file])
        for mode in Mode.PLAIN, Mode.FIFO, Mode.RUN_AHEAD:
            emulated.use_hub(file, mode, DEPTH)
            asked = Point(mode, (1, 2), DEPTH)
            found = measure(emulated, [first, second], [SLOW, SLOW], asked, 3.0)
            assert found.mismatched == 0
            assert all(tokens > 5 for tokens in found.tokens_per_s)
            if mode is Mode.PLAIN:
                assert (emulated.hub, found.busy, found.tokens_per_round) == (None, 0, 1)
            else:
                assert found.tokens_per_round > 1.3
                assert 0 < found.busy < 1
                assert found.target["rounds"] > 5
            assert mode is Mode.RUN_AHEAD or not found.hub.get("ahead_s")
        emulated.drop_targets([second])
        measure(emulated, [first], [SLOW], Point(Mode.RUN_AHEAD, (1,), DEPTH), 3.0)
        ever = counters.look(emulated.hub, [first], emulated.redis_url).hub
        assert ever["ahead_s"] > 0  # at least before it finds whether that is of use here
        assert list(lab.services) == ["target-0", "hub"]


def test_messages_are_measured() -> None:
    costs = with_messages(WORLD, lambda _: None).costs
    assert 0 <= costs.hub_job_s <= costs.network_s < 0.2
    assert costs.draft_next == WORLD.costs.draft_next


def test_the_command_from_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that follows the recording, by real services; then once more from what is there."""

    def record(*_: object) -> World:
        return WORLD

    monkeypatch.setattr(run, "record", record)
    monkeypatch.setattr(point, "WARM_UP_S", 0.5)
    monkeypatch.setattr(star, "MAX_LENGTH", 128)
    out = tmp_path / "run"
    options = ["--quick", "--targets", "1,2", "--modes", "batched", "--verify-ms", "20"]
    command = ["bench", "scale", *options, "--json", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["mismatched"] == 0
    assert 0 < found["unforced_idle"] < 1
    assert 0 < found["jain"] <= 1
    assert found["s_over_v"] > 0
    assert found["model_error"] is not None
    assert (out / "throughput.png").exists()
    assert json.loads((out / "scale.json").read_text())["kind"] == "scale"
    monkeypatch.setattr("starsd.bench.scale.emulated._play", None)  # nothing is measured again
    again = CliRunner().invoke(app, command)
    assert json.loads(again.stdout.splitlines()[-1])["rows"] == found["rows"]
    report = CliRunner().invoke(app, ["bench", "report", str(out / "scale.json")])
    assert "## `starsd bench scale`" in report.stdout
