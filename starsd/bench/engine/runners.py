"""Runners for benchmarks: loaded as a target loads them, their cache touched up to a context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from starsd.engine.interface import Row, Runner
from starsd.engine.loading import PretrainedModel
from starsd.settings.target import TargetSettings

STRIDE = 16
"""Positions that surely share a page of memory with one of them."""
TOKEN = 5


class CachedRunner(Runner, Protocol):
    @property
    def cache_bytes(self) -> int:
        """Of all slots."""


def open_runner(settings: TargetSettings) -> CachedRunner:
    """Raises ConfigError or UnsupportedModelError."""
    return PretrainedModel(settings).runner()


def touch(runner: Runner, slots: Iterable[int], context: int) -> None:
    """Make the cache of these slots real memory up to ``context``.

    A step's time does not depend on what its keys say, but fresh memory is a single page of
    zeros, and that would be read too fast.
    """
    chosen = list(slots)
    for start in range(0, context, STRIDE):
        runner.forward([Row(slot, [TOKEN], start, want=0) for slot in chosen])


def one_sequence(rows: int, context: int) -> list[Row]:
    """``rows`` new tokens of one sequence, all wanted, as verification has them."""
    return [Row(0, [TOKEN] * rows, context, want=rows)]


def sequences(count: int, context: int) -> list[Row]:
    """One new token of each."""
    return [Row(slot, [TOKEN], context) for slot in range(count)]
