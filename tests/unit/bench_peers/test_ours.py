"""What our own servers are started with; that they then serve is shown in ``test_run``."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from starsd.bench.peers import ours
from starsd.check.lab import Lab, Service
from tests.unit.bench_peers.support import CORE

Settings = dict[str, dict[str, Any]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of each service, by name; nothing runs."""
    seen: Settings = {}

    def start(lab: Lab, name: str, kind: str, **settings: Any) -> Service:
        seen[name] = settings
        lab.services[name] = Service(name, kind, {}, f"http://{name}", "", Path(name))
        return lab.services[name]

    monkeypatch.setattr(Lab, "start", start)
    monkeypatch.setattr(Lab, "wait_ready", lambda lab, timeout_s: None)
    monkeypatch.setattr(Lab, "wait_hubs", lambda lab, timeout_s: None)
    return seen


@pytest.mark.parametrize(
    ("precision", "setting"),
    [
        ("float32", {"dtype": "float32"}),
        ("bfloat16", {"dtype": "bfloat16"}),
        ("int8", {"quantize": "int8"}),
        ("int4", {"quantize": "int4"}),
    ],
)
def test_plain_is_one_target_in_its_precision(
    started: Settings, precision: str, setting: dict[str, str]
) -> None:
    with ours.plain(precision, "folder", [CORE], 8, 1.0) as server:
        assert (server.name, server.url) == (f"plain-{precision}", "http://gateway")
    assert started == {
        "target": {**setting, "drafting": False, "threads": 1},
        "gateway": {"targets": json.dumps(["http://target"])},
    }


def test_the_star_has_a_core_for_each_of_hub_and_target(
    started: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "pinned", nullcontext)
    with ours.star("int4", "layers:2", 15.0, "folder", [2, 5], 8, 1.0) as server:
        assert server.name == "star-int4"
    assert started["draft"] == {"cores": 5, "draft": "layers:2", "quantize": "int4"}
    assert started["target"] == {"cores": 2, "wait_budget": 15.0, "quantize": "int4"}
