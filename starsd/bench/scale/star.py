"""A star of emulated targets around a real hub process: real Redis, real protocol, replayed models.

Targets live through all points of a run; each has a hub of its own settings, the next one in the
place of the last. The hub has a core of its own, since on a node of its own it had all; targets,
which sleep, share the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starsd.bench.machine import allowed_cores
from starsd.bench.scale.replay import DRAFT, TARGET
from starsd.check.lab import POLL_S, Lab, Service
from starsd.errors import DeadlineError
from starsd.plan.star import STARS, Mode

NAME = "replayed"
HUB = "hub"
READY_S = 120.0
HUB_S = 30.0
MAX_LENGTH = 1024
SPIN_MS = 500
"""A hub with a core of its own does not sleep between jobs."""
SLOTS = 128
"""Of a hub: sequences of all targets, and those that ended not long ago."""
FLOOD = 16
"""Slots of a target."""
STEP_TOKENS = 128
"""Of a target: stretched, a step of many prompts' tokens would keep it silent for seconds, and a
target that is silent serves nobody. Its own sequences' proposals fit."""
DEEPEST = 16
"""Targets ask for no more; a hub's own limit is what decides."""
WAIT_BUDGET = 1000.0
"""In plain steps: a full hub keeps its targets waiting, and that is what is measured."""


class EmulatedStar:
    """Targets by number from 0, in the order they were added."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.targets: list[Service] = []

    @property
    def redis_url(self) -> str:
        assert self._lab.redis is not None
        return self._lab.redis.url

    @property
    def hub(self) -> Service | None:
        return self._lab.services.get(HUB)

    def add_targets(self, worlds: Sequence[Path], **settings: Any) -> list[Service]:
        """One for each, all starting at once. Raises UnavailableError, DeadlineError."""
        first = len(self.targets)
        given = {**target_settings(), **settings}
        for number, world in enumerate(worlds, first):
            self.targets.append(self._lab.start(f"target-{number}", "target", model=world, **given))
        for service in self.targets[first:]:
            service.wait_ready(READY_S)
        return self.targets[first:]

    def drop_targets(self, services: Sequence[Service]) -> None:
        for service in services:
            service.stop()
            self.targets.remove(service)
            del self._lab.services[service.name]

    def use_hub(self, world: Path, mode: Mode, depth: int) -> None:
        """Every target has been welcomed by it, or (no star) has none. Raises UnavailableError,
        DeadlineError."""
        if self.hub is not None:
            self.hub.stop()
            del self._lab.services[HUB]
        self._wait_hubs(0)
        if mode in STARS and depth:
            given = hub_settings(mode, depth)
            self._lab.start(HUB, "draft", model=world, **given).wait_ready(READY_S)
            self._wait_hubs(1)

    def _wait_hubs(self, count: int) -> None:
        deadline = time.monotonic() + HUB_S
        while any(target.hubs_usable != count for target in self.targets):
            if time.monotonic() > deadline:
                raise DeadlineError(f"not every target knows {count} hubs after {HUB_S:g} s")
            time.sleep(POLL_S)


def target_settings() -> dict[str, Any]:
    return {
        "scripted": TARGET,
        "served_model_name": NAME,
        "max_sequences": FLOOD,
        "max_length": MAX_LENGTH,
        "step_tokens": STEP_TOKENS,
        "draft_depth": DEEPEST,
        "draft_nodes": 0,
        "ngram": 0,
        "wait_budget": WAIT_BUDGET,
        "prefix_cache": 0,
        "depth_control": "fixed",
        "cores": _listed(allowed_cores()[:-1]),
    }


def hub_settings(mode: Mode, depth: int) -> dict[str, Any]:
    """Chains of so many tokens."""
    return {
        "scripted": DRAFT,
        "draft": "self",
        "trees": "off",
        "max_sequences": SLOTS,
        "max_length": MAX_LENGTH,
        "max_depth": depth,
        "scheduler": "fifo" if mode is Mode.FIFO else "fair",
        "run_ahead": "auto" if mode is Mode.RUN_AHEAD else "off",
        "cores": _listed(allowed_cores()[-1:]),
        "spin_ms": SPIN_MS,
    }


def _listed(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))
