"""What ``starsd bench draft`` measures, and the settings it loads target and drafts with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from starsd.bench.speed import NO_DRAFT
from starsd.errors import ConfigError
from starsd.settings.draft import DraftSettings
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings

NGRAM = "ngram"
"""The draft that is no model."""
SLOTS = 16
"""Texts at once; what is drafted does not depend on it."""
LENGTH = 1024
"""Positions of a slot while prompts are not yet known."""
CHAIN, TREE = "chain", "tree"


class Shape(NamedTuple):
    """What proposals may be; more nodes than depth make them trees."""

    depth: int
    nodes: int


@dataclass(frozen=True)
class Setup:
    """``drafts`` as of the ``draft`` setting, or ``NGRAM``; ``prompts`` 0: all."""

    model: str
    drafts: tuple[str, ...]
    dtype: str
    quantize: str
    temperatures: tuple[float, ...]
    prompts: int
    max_tokens: int
    depth: int
    nodes: int

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Trees only where ``nodes`` leave room for branches."""
        chain = {CHAIN: Shape(self.depth, 0)}
        tree = {TREE: Shape(self.depth, self.nodes)}
        return chain | tree if self.nodes > self.depth else chain


def check(setup: Setup) -> None:
    """Before the work. Raises ConfigError."""
    if not hasattr(os, "sched_setaffinity"):
        raise ConfigError("timing on chosen cores needs Linux")
    if NO_DRAFT in setup.drafts:
        raise ConfigError("there is nothing to measure without a draft", param="--drafts")
    if target_settings(setup, LENGTH).device != "cpu":
        raise ConfigError("costs are those of a core each: want STARSD_DEVICE=cpu")


def target_settings(setup: Setup, length: int) -> TargetSettings:
    """A target's, as if it were served. Raises ConfigError."""
    return load(TargetSettings, **_common(setup, length))


def draft_settings(setup: Setup, draft: str, length: int) -> DraftSettings:
    """A hub's that drafts trees. A step reads whatever is to be read, so that all but a round's
    first step draft. Raises ConfigError."""
    whole = {"prefill_chunk": length, "step_tokens": SLOTS * length}
    return load(DraftSettings, draft=draft, trees="on", **whole, **_common(setup, length))


def _common(setup: Setup, length: int) -> dict[str, Any]:
    return {
        "model": setup.model,
        "dtype": setup.dtype,
        "quantize": setup.quantize,
        "max_sequences": SLOTS,
        "max_length": length,
        "threads": 1,
    }
