"""Counters as the services themselves expose them."""

from __future__ import annotations

import os

import pytest

from services.draft.stats import HubStats
from services.target.stats import StarStats
from starsd.bench.scale.counters import Look, of_hub, of_target, resident_mb


def test_of_a_hub() -> None:
    stats = HubStats()
    stats.busy_seconds.inc(3)
    stats.idle_seconds.inc(2)
    stats.ahead_seconds.inc(1)
    stats.batch.observe(4)
    stats.service_seconds.observe(0.5)
    stats.drafted.inc(7)
    stats.foreseen("hit")
    stats.parts.python.seconds, stats.parts.transport.seconds = 0.25, 0.5
    found = of_hub(stats.exposition().decode())
    assert (found["busy_s"], found["idle_s"], found["ahead_s"], found["other_s"]) == (3, 2, 1, 0.75)
    assert (found["steps"], found["sequences"], found["served"], found["service_s"]) == (
        1,
        4,
        1,
        0.5,
    )
    assert (found["drafted"], found["met_hit"]) == (7, 1)


def test_of_a_target() -> None:
    stats = StarStats()
    stats.round([1, 1, 1], 2, "hub")
    stats.foreseen("taken")
    stats.round_trip(0.020, 4_000, 10_000)
    stats.verified(1, 0.05)
    stats.step_seconds.observe(0.05)
    stats.wait_seconds.inc(0.02)
    stats.parts.sampling.seconds = 0.125
    found = of_target(stats.exposition().decode())
    assert (found["rounds"], found["steps"], found["step_s"], found["wait_s"]) == (1, 1, 0.05, 0.02)
    assert (found["reaching_0"], found["reaching_2"], "reaching_3" in found) == (1, 1, False)
    assert (found["draft_s"], found["verify_s"], found["other_s"]) == (0.01, 0.05, 0.125)
    assert found["foreseen_taken"] == 1
    assert found["network_s"] == pytest.approx(0.006)


def test_between_two_looks() -> None:
    before = Look({"busy_s": 1.0}, [{"steps": 1.0}, {"steps": 5.0}], {"bytes": 10.0})
    after = Look({"busy_s": 3.0}, [{"steps": 4.0}, {"steps": 7.0, "wait_s": 2.0}], {"bytes": 15.0})
    found = after.since(before)
    assert (found.hub, found.server) == ({"busy_s": 2.0}, {"bytes": 5.0})
    assert found.all_targets() == {"steps": 5.0, "wait_s": 2.0}


def test_memory_of_a_process() -> None:
    assert resident_mb(os.getpid()) > 10
    assert resident_mb(2**22 + 1) == 0
