from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starsd.bench.scale import emulated
from starsd.bench.scale.emulated import (
    AUTO,
    BASE,
    FLOODED,
    MODELS,
    QUIET,
    scenes,
    stretched,
    worlds,
)
from starsd.bench.scale.models import DEEPEST
from starsd.bench.scale.point import Measured, Point
from starsd.bench.scale.setup import DEPTH
from starsd.bench.scale.star import hub_settings, target_settings
from starsd.bench.scale.store import Store
from starsd.plan.analytic import full_at
from starsd.plan.star import Mode
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.unit.bench_scale.support import SETUP, make_world, measured

WORLD = make_world()


@pytest.mark.parametrize("full", [2, 3, 4, 8])
def test_full_at(full: int) -> None:
    """The emulated hub is full where the setup wants it, messages of a few per cent included."""
    world = stretched(WORLD, replace(SETUP, full_at=full))
    late = replace(world.costs, hub_job_s=0.04 * world.costs.service_s(DEPTH) if full > 2 else 0.0)
    assert full_at(world.costs, DEPTH) == full_at(late, DEPTH) == full


def test_full_at_0_keeps_the_measured_ratio() -> None:
    world = stretched(WORLD, replace(SETUP, full_at=0))
    before = WORLD.costs.service_s(DEPTH) / WORLD.costs.verify(1 + DEPTH)
    after = world.costs.service_s(DEPTH) / world.costs.verify(1 + DEPTH)
    assert after == pytest.approx(before)


def test_verify_ms_stretches_all_steps() -> None:
    world = stretched(WORLD, replace(SETUP, verify_ms=250.0))
    assert world.costs.verify(1 + DEPTH) == pytest.approx(0.250)


def test_modes_and_targets() -> None:
    first = next(scenes(replace(SETUP, modes=(Mode.PLAIN, Mode.FIFO), targets=(1, 8))))
    assert [point.key for point in first.points] == [
        "plain-1x1-depth0",
        "plain-8x1-depth0",
        "fifo-1x1-depth5",
        "fifo-8x1-depth5",
    ]
    assert first.targets == (BASE,) * 8


def test_everything_is_looked_at() -> None:
    equal, auto, mixed, models = scenes(SETUP)
    assert len(set(equal.points)) == len(equal.points)
    assert Point(Mode.BATCHED, (1, 1, 1, 1, 16), DEPTH, FLOODED) in equal.points
    assert {point.depth for point in equal.points} == {0, 1, 2, 3, DEPTH, DEEPEST}
    assert {(point.note, point.depth) for point in auto.points} == {(AUTO, DEEPEST)}
    assert auto.settings == {"depth_control": "auto"}
    assert [point.mode for point in mixed.points] == ["fifo", "batched", "runahead"]
    assert len(set(mixed.targets)) == len(set(models.targets)) == 2


def test_quick_is_less() -> None:
    quick = list(scenes(replace(SETUP, quick=True)))
    assert len(quick) == 2
    assert {point.depth for point in quick[0].points} == {0, 1, DEPTH}
    assert {point.targets for point in quick[0].points if point.depth == 1} == {1, 4}
    assert [point.targets for point in quick[1].points] == [1, 4]
    assert replace(SETUP, quick=True).seconds < SETUP.seconds


def test_worlds_of_other_speeds_and_of_another_model() -> None:
    other = make_world(revision="other")
    found = worlds(WORLD, other)
    verify = [found[name].costs.verify(6) for name in ("fast", "base", "slow")]
    assert verify == pytest.approx([0.5 * verify[1], verify[1], 2 * verify[1]])
    first, second, hub = found[f"{MODELS}-base"], found[f"{MODELS}-other"], found[MODELS]
    assert (first.revision, second.revision) == ("recorded", "other")
    assert hub.texts == (*first.texts, *second.texts)
    prompts = {text.prompt for text in hub.texts}
    assert len(prompts) == len(hub.texts)
    assert set(worlds(WORLD, None)) == {"base", "fast", "slow"}


def test_settings_are_those_of_services() -> None:
    """Fixed depths, chains, nobody's own n-grams; the paper's hub and ours."""
    target: dict[str, Any] = target_settings()
    assert TargetSettings(**target).depth_control == "fixed"
    fifo, batched, ahead = (
        DraftSettings(**hub_settings(mode, 3)) for mode in (Mode.FIFO, Mode.BATCHED, Mode.RUN_AHEAD)
    )
    assert (fifo.scheduler, batched.scheduler) == ("fifo", "fair")
    assert (fifo.run_ahead, batched.run_ahead, ahead.run_ahead) == ("off", "off", "auto")
    assert {one.max_depth for one in (fifo, batched, ahead)} == {3}


class FakeStar:
    """Notes what it is asked for."""

    hubs: list[tuple[Mode, int]] = []  # noqa: RUF012

    def __init__(self, _: Any) -> None:
        pass

    def add_targets(self, files: Sequence[Path], **settings: Any) -> list[int]:
        assert all(file.exists() for file in files)
        return list(range(len(files)))

    def use_hub(self, file: Path, mode: Mode, depth: int) -> None:
        self.hubs.append((mode, depth))


def test_a_broken_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measure(star: Any, targets: Any, worlds: Any, point: Point, seconds: float) -> Measured:
        asked.append(point.key)
        assert len(targets) == len(worlds) == point.targets
        return measured(point.mode, point.sequences, point.depth, point.note)

    monkeypatch.setattr(emulated, "EmulatedStar", FakeStar)
    monkeypatch.setattr(emulated, "measure", measure)
    monkeypatch.setattr(FakeStar, "hubs", [])
    setup = replace(SETUP, modes=(Mode.PLAIN, Mode.FIFO), targets=(1, 2), quick=True)
    store = Store(tmp_path, setup)
    kept = measured(Mode.FIFO, (1,))
    store.save(kept.point.key, kept)
    found = emulated.run(setup, worlds(WORLD, None), store, lambda _: None)
    assert asked == ["fifo-2x1-depth5", "plain-1x1-depth0", "plain-2x1-depth0"]
    assert FakeStar.hubs == [(Mode.FIFO, DEPTH), (Mode.PLAIN, 0)]
    assert [one.point.key for one in found][-2:] == ["fifo-1x1-depth5", "fifo-2x1-depth5"]
    asked.clear()
    assert emulated.run(setup, worlds(WORLD, None), store, lambda _: None) == found
    assert asked == []


def test_quiet_targets_are_those_of_a_point() -> None:
    assert emulated.flooded().targets == QUIET + 1
