from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from services.draft.stats import HubStats
from services.target.stats import StarStats
from starsd.bench.profile_result import (
    HUB,
    TARGET,
    Counters,
    Window,
    bars,
    profile,
    read_counters,
    summarise,
)
from starsd.bench.profile_tables import lines, tables
from starsd.errors import ConfigError
from starsd.process.parts import Parts
from tests.unit.bench.answers import MACHINE
from tests.unit.bench.profiles import COUNTED, HUB_COUNTED, PARTS, windows


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def parts_of(clock: Clock) -> Parts:
    parts = Parts(clock=clock)
    with parts.forward:
        clock.now += 2
    with parts.python:
        clock.now += 1
    return parts


def test_counters_are_read_as_the_target_exposes_them() -> None:
    stats = StarStats(parts_of(Clock()))
    stats.step_seconds.observe(0.1)
    stats.step_seconds.observe(0.2)
    found = read_counters(stats.exposition().decode())
    seconds = {"forward": 2.0, "sampling": 0.0, "transport": 0.0, "wait": 0.0, "python": 1.0}
    assert found == Counters(steps=2, seconds=seconds)


def test_counters_are_read_as_the_hub_exposes_them() -> None:
    stats = HubStats(parts_of(Clock()))
    stats.batch.observe(3)
    stats.batch.observe(4)
    stats.idle_seconds.inc(1.5)
    found = read_counters(stats.exposition().decode())
    assert (found.steps, found.sequences, found.idle_s) == (2, 7, 1.5)
    assert found.seconds["forward"] == 2


def test_what_lies_between_two_looks() -> None:
    later = Counters(steps=15, sequences=5, seconds={**PARTS, "wait": 0.75}, idle_s=1.0)
    found = later.since(COUNTED)
    assert (found.steps, found.sequences, found.idle_s) == (5, 5, 1)
    assert found.seconds == {**dict.fromkeys(PARTS, 0.0), "wait": 0.25}


def test_a_mean_step_without_waiting() -> None:
    one = profile(Window(TARGET, 1, "greedy", COUNTED))
    assert one.step_us == pytest.approx(100_000)
    assert one.wait_us == pytest.approx(50_000)
    assert "wait" not in one.us
    assert one.us["matrices"] == pytest.approx(80_000)
    assert one.share["attention"] == pytest.approx(0.06)
    assert sum(one.share.values()) == pytest.approx(1)
    assert one.outside_matrices == pytest.approx(0.2)
    assert (one.steps, one.sequences) == (10, None)


def test_a_hub_waits_between_its_steps() -> None:
    one = profile(Window(HUB, 1, "greedy", HUB_COUNTED))
    assert (one.wait_us, one.step_us) == (12_500, 100_000)
    assert one.sequences == 1.5
    assert one.outside_matrices is None


@pytest.mark.parametrize(
    ("sampling", "share", "met"),
    [
        ("greedy", 0.03, True),
        ("greedy", 0.031, False),
        ("filtered", 0.03, True),
        ("filtered", 0.031, False),
        ("unfiltered", 0.1, True),
        ("unfiltered", 0.101, False),
    ],
)
def test_bars_of_sampling(sampling: str, share: float, met: bool) -> None:
    one = replace(profile(Window(TARGET, 1, sampling, COUNTED)), share={"sampling": share})
    (bar,) = [bar for bar in bars(one) if bar.name == "sampling"]
    assert (bar.met, bar.value) == (met, share)


@pytest.mark.parametrize(("value", "met"), [(0.15, True), (0.151, False)])
def test_bar_of_what_is_outside_the_matrices(value: float, met: bool) -> None:
    one = replace(profile(Window(TARGET, 1, "greedy", COUNTED)), outside_matrices=value)
    bar = next(iter(bars(one)))
    assert (bar.name, bar.met, bar.limit) == ("outside matrices", met, 0.15)


def test_undivided_forwards_have_no_such_bar() -> None:
    one = profile(Window(HUB, 1, "greedy", HUB_COUNTED))
    assert [bar.name for bar in bars(one)] == ["sampling"]


def test_a_service_that_did_nothing() -> None:
    with pytest.raises(ConfigError, match="the hub took no step"):
        summarise([Window(HUB, 1, "greedy", Counters())], {}, MACHINE)


def printed() -> list[str]:
    page = io.StringIO()
    for table in tables(summarise(windows(), {}, MACHINE)):
        Console(width=120, file=page).print(table)
    return [" ".join(line.replace("│", " ").split()) for line in page.getvalue().splitlines()]


def test_a_table_for_each_service_and_batch() -> None:
    shown = printed()
    titles = [line for line in shown if line.startswith("Step of")]
    assert titles == [
        "Step of the target, batch 1: us",
        "Step of the target, batch 16: us",
        "Step of the hub, batch 16: us",
    ]
    assert "matrices 80000 80.0% 80000 80.0%" in shown
    assert "step 100000 100000" in shown
    assert "outside matrices 20.0% 20.0%" in shown
    assert "waiting, beside 50000" in shown
    assert "outside matrices unknown" in shown
    assert "sequences 1.5" in shown


def test_missed_bars_and_load_are_told() -> None:
    told = list(lines(summarise(windows(), {}, MACHINE)))
    assert told[0] == "3 of 7 bars met"
    assert told[1] == (
        "missed: target, batch 16, greedy: outside matrices 20.0% of a step, want 15% at most"
    )
    assert any("hub, batch 16, greedy: sampling 25.0% of a step, want 3%" in line for line in told)
    assert any("torch computes" in line for line in told)
    assert "load average 0.1 before, 1.2 after" in told[-1]


def test_two_threads_of_one_core_are_told() -> None:
    result = summarise(windows(), {}, {**MACHINE, "siblings": ((0, 1),)})
    assert "threads of one physical core" in list(lines(result))[-1]
