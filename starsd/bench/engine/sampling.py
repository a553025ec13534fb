"""What choosing a token costs, on logits of real text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from starsd.bench.engine.setup import SAMPLING
from starsd.bench.engine.timing import Timer
from starsd.engine.interface import Logits, Row, Runner
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample

ROWS = 16
WAYS = {
    "greedy": SamplingParams(seed=1, temperature=0.0),
    "top-k 50": SamplingParams(seed=1, top_k=50),
    "top-p 0.95": SamplingParams(seed=1, top_p=0.95),
    "unfiltered": SamplingParams(seed=1),
}


def logits_of(runner: Runner, text: Sequence[int]) -> Logits:
    """Of the last ``ROWS`` tokens of a text."""
    (found,) = runner.forward([Row(0, text, 0, want=min(ROWS, len(text)))])
    return found.copy()


def measure(logits: Logits, timer: Timer) -> dict[str, float]:
    """Microseconds a row."""
    cases: dict[tuple[str, ...], Callable[[], object]] = {
        (name,): partial(_sample_all, logits, params) for name, params in WAYS.items()
    }
    found = timer.medians(SAMPLING, cases)
    return {name: 1e6 * seconds / len(logits) for (name,), seconds in found.items()}


def _sample_all(logits: Logits, params: SamplingParams) -> list[int]:
    return [sample(row, params, position, ()) for position, row in enumerate(logits)]
