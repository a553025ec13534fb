"""Long contexts: what a sequence's cache takes, and what a step of one row costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starsd.bench.engine.runners import CachedRunner, one_sequence, touch
from starsd.bench.engine.setup import CONTEXTS
from starsd.bench.engine.timing import Timer
from starsd.engine.interface import KV_BLOCK


@dataclass(frozen=True)
class Contexts:
    """Of a precision, by length of context (as JSON keys, texts). Those past the model's own
    maximum are ``left_out``."""

    precision: str
    cache_mb: dict[str, float]
    step_ms: dict[str, float]
    left_out: list[int]


def measure(precision: str, runner: CachedRunner, lengths: Sequence[int], timer: Timer) -> Contexts:
    """``runner`` has one slot or more. A context counts the step's own token."""
    possible = [length for length in lengths if length <= runner.max_length]
    touch(runner, [0], max(possible, default=0))
    found = timer.medians(
        CONTEXTS,
        {
            (precision, str(length)): partial(runner.forward, one_sequence(1, length - 1))
            for length in possible
        },
    )
    byte_each = runner.cache_bytes / (runner.kv_blocks * KV_BLOCK)
    return Contexts(
        precision=precision,
        cache_mb={str(length): byte_each * length / 1e6 for length in possible},
        step_ms={length: 1000 * seconds for (_, length), seconds in found.items()},
        left_out=[length for length in lengths if length > runner.max_length],
    )
