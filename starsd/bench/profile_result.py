"""What a run of ``starsd bench profile`` says: a step's time by part, and whether that is little
enough outside the matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starsd.bench.exposition import Exposition, less
from starsd.errors import ConfigError
from starsd.process.parts import FORWARD, NAME, SAMPLING, WAIT

TARGET, HUB = "target", "hub"
GREEDY, FILTERED, UNFILTERED = "greedy", "filtered", "unfiltered"
SAMPLINGS = (GREEDY, FILTERED, UNFILTERED)
MATRICES = "matrices"
OUTSIDE_LIMIT = 0.15
SAMPLING_LIMITS = {GREEDY: 0.03, FILTERED: 0.03, UNFILTERED: 0.10}


@dataclass(frozen=True)
class Counters:
    """Of a service: its steps, the sequences in them (hubs only), seconds by part, and idle ones
    (hubs only: a target that waits is in the midst of a step)."""

    steps: float = 0.0
    sequences: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    idle_s: float = 0.0

    def since(self, before: Counters) -> Counters:
        return Counters(
            self.steps - before.steps,
            self.sequences - before.sequences,
            less(self.seconds, before.seconds),
            self.idle_s - before.idle_s,
        )


def read_counters(text: str) -> Counters:
    """From a target's or a hub's /metrics."""
    found = Exposition(text)
    hub_steps = found.value("starsd:hub_batch_size_count")
    return Counters(
        steps=hub_steps or found.value("starsd:step_seconds_count"),
        sequences=found.value("starsd:hub_batch_size_sum"),
        seconds=found.labelled(f"{NAME}_total"),
        idle_s=found.value("starsd:hub_idle_seconds_total"),
    )


@dataclass(frozen=True)
class Window:
    """What a service counted while ``batch`` answers ran."""

    service: str
    batch: int
    sampling: str
    counted: Counters


@dataclass(frozen=True)
class Profile:
    """A mean step. ``share`` and ``step_us`` are without waiting. ``sequences`` per step, where
    it is counted. ``outside_matrices`` is None where the runner does not divide its forwards."""

    service: str
    batch: int
    sampling: str
    steps: int
    sequences: float | None
    step_us: float
    wait_us: float
    us: dict[str, float]
    share: dict[str, float]
    outside_matrices: float | None


@dataclass(frozen=True)
class Bar:
    """``value`` of a step may be at most ``limit``."""

    service: str
    batch: int
    sampling: str
    name: str
    value: float
    limit: float
    met: bool


@dataclass(frozen=True)
class Result:
    profiles: list[Profile]
    bars: list[Bar]
    settings: dict[str, Any]
    machine: dict[str, Any]


def summarise(
    windows: Iterable[Window], settings: dict[str, Any], machine: dict[str, Any]
) -> Result:
    """Raises ConfigError if a service took no step."""
    profiles = [profile(window) for window in windows]
    found = [bar for one in profiles for bar in bars(one)]
    return Result(profiles, found, settings, machine)


def profile(window: Window) -> Profile:
    """Raises ConfigError if the service took no step."""
    counted = window.counted
    if counted.steps < 1:
        raise ConfigError(f"the {window.service} took no step: raise --tokens", param="--tokens")
    us = {part: 1e6 * seconds / counted.steps for part, seconds in counted.seconds.items()}
    wait_us = us.pop(WAIT, 0.0) + 1e6 * counted.idle_s / counted.steps
    step_us = sum(us.values())
    share = {part: value / step_us for part, value in us.items()}
    return Profile(
        service=window.service,
        batch=window.batch,
        sampling=window.sampling,
        steps=round(counted.steps),
        sequences=counted.sequences / counted.steps if counted.sequences else None,
        step_us=step_us,
        wait_us=wait_us,
        us=us,
        share=share,
        outside_matrices=1 - share[MATRICES] if MATRICES in share else None,
    )


def bars(one: Profile) -> Iterator[Bar]:
    where = (one.service, one.batch, one.sampling)
    if one.outside_matrices is not None:
        value = one.outside_matrices
        yield Bar(*where, "outside matrices", value, OUTSIDE_LIMIT, value <= OUTSIDE_LIMIT)
    sampling, limit = one.share.get(SAMPLING, 0.0), SAMPLING_LIMITS[one.sampling]
    yield Bar(*where, SAMPLING, sampling, limit, sampling <= limit)


def undivided(result: Result) -> bool:
    """Whether a forward's parts could not be told apart."""
    return any(FORWARD in one.us for one in result.profiles)
