"""What ``starsd bench engine`` measures, and how."""

from __future__ import annotations

import os
from dataclasses import dataclass

from starsd.bench.peers.ours import PRECISIONS
from starsd.bench.peers.server import pinned
from starsd.errors import ConfigError
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings

STEPS, THROUGHPUT, SAMPLING, FLIPS = "steps", "throughput", "sampling", "flips"
CONTEXTS, INVARIANCE = "contexts", "invariance"
SUBJECTS = (STEPS, THROUGHPUT, SAMPLING, FLIPS, CONTEXTS, INVARIANCE)
CONTEXT = 200
"""Tokens before a step, except where contexts are the subject."""
SEQUENCES = 64
LENGTH = 320
"""Positions of a slot: a short prompt and the longest answer, or ``CONTEXT`` and some steps."""


@dataclass(frozen=True)
class Setup:
    """``only`` are ``SUBJECTS``. ``tokens`` compared for flips; ``repeats`` of each timing."""

    model: str
    precisions: tuple[str, ...]
    cores: tuple[int, ...]
    only: tuple[str, ...]
    contexts: tuple[int, ...]
    tokens: int
    repeats: int

    @property
    def threads(self) -> int:
        return len(self.cores)


def check(setup: Setup) -> None:
    """Before the work. Raises ConfigError."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("timing on chosen cores needs Linux")
    with pinned(setup.cores):
        pass
    for precision in setup.precisions:
        settings_of(setup, precision, slots=1, length=max(setup.contexts))


def settings_of(
    setup: Setup,
    precision: str,
    *,
    slots: int,
    length: int,
    compiled: bool = True,
    invariant: bool = False,
) -> TargetSettings:
    """A target's, as if it were served. Raises ConfigError."""
    return load(
        TargetSettings,
        model=setup.model,
        max_sequences=slots,
        max_length=length,
        threads=setup.threads,
        compiled=compiled,
        batch_invariant=invariant,
        **PRECISIONS[precision],
    )
