"""What ``starsd bench peers`` compares, and how."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from starsd.bench import record
from starsd.bench.peers import catalogue, ours, plot
from starsd.bench.peers.server import pinned
from starsd.errors import ConfigError

NO_DRAFT = "none"


@dataclass(frozen=True)
class Options:
    """``only`` are groups of peers, ``ours`` precisions of our own. ``draft`` other than none adds
    the star: its target, with this ``wait_budget``, on the first of two cores, its hub on the
    second. ``requests`` are numbers of requests at once."""

    cores: tuple[int, ...]
    only: tuple[str, ...] = catalogue.GROUPS
    ours: tuple[str, ...] = tuple(ours.PRECISIONS)
    draft: str = NO_DRAFT
    wait_budget: float = 1.0
    model: str = "smollm2-135m-instruct"
    envs: Path = Path("~/.cache/starsd/peers")
    prompts: int = 8
    max_tokens: int = 96
    repeats: int = 3
    requests: tuple[int, ...] = (1, 8)
    out: Path | None = None
    plot: Path | None = None


def check(options: Options) -> None:
    """Before the work. Raises ConfigError, naming the option."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("comparing servers on the same cores needs Linux")
    with pinned(options.cores):
        pass
    for param, given, known in (
        ("--only", options.only, catalogue.GROUPS),
        ("--ours", options.ours, tuple(ours.PRECISIONS)),
    ):
        if unknown := [word for word in given if word not in known]:
            raise ConfigError(
                f"{param} {','.join(unknown)}: want of {','.join(known)}", param=param
            )
    if options.draft != NO_DRAFT and len(options.cores) != 2:
        raise ConfigError("a star takes two cores, target and hub: --cores 0,1", param="--cores")
    if options.plot:
        plot.check_installed()
        record.check_writable(options.plot)
