"""Decoding many sequences at once, against eager transformers on the same cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from starsd.bench.engine.runners import TOKEN, touch
from starsd.bench.engine.setup import CONTEXT, SEQUENCES, THROUGHPUT
from starsd.bench.engine.timing import Timer
from starsd.engine.interface import Row, Runner
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample

BLOCK = 4
"""Steps of one turn."""
HF = "transformers"
BAR_PRECISION, BAR_CORES, BAR = "bfloat16", 2, 2.0
GREEDY = SamplingParams(seed=0, temperature=0.0)


class Batch(Protocol):
    def decode(self, steps: int) -> None: ...


@dataclass(frozen=True)
class Throughput:
    """``over_hf`` are ratios of ours to eager transformers in bfloat16. ``met`` None: no bar,
    which is for bfloat16 on two cores."""

    sequences: int
    context: int
    tokens_per_s: dict[str, float]
    over_hf: dict[str, float]
    met: bool | None


class OurBatch:
    """Greedy decoding over a runner, from the same context each time."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        touch(runner, range(SEQUENCES), CONTEXT + BLOCK)

    def decode(self, steps: int) -> None:
        tokens = [TOKEN] * SEQUENCES
        for place in range(CONTEXT, CONTEXT + steps):
            rows = [Row(slot, [token], place) for slot, token in enumerate(tokens)]
            logits = self._runner.forward(rows)
            tokens = [sample(one[0], GREEDY, place + 1, ()) for one in logits]


def measure(runners: Mapping[str, Runner], hf: Batch, timer: Timer) -> Throughput:
    batches: dict[str, Batch] = {name: OurBatch(runner) for name, runner in runners.items()}
    batches[HF] = hf
    cases: dict[tuple[str, ...], Callable[[], object]] = {
        (name,): partial(batch.decode, BLOCK) for name, batch in batches.items()
    }
    found = timer.medians(THROUGHPUT, cases)
    return throughput({name: seconds for (name,), seconds in found.items()}, timer.threads)


def throughput(seconds: Mapping[str, float], threads: int) -> Throughput:
    """From the seconds of a block."""
    rates = {name: BLOCK * SEQUENCES / value for name, value in seconds.items()}
    over = {name: rate / rates[HF] for name, rate in rates.items() if name != HF}
    barred = threads == BAR_CORES and BAR_PRECISION in over
    return Throughput(
        sequences=SEQUENCES,
        context=CONTEXT,
        tokens_per_s=rates,
        over_hf=over,
        met=over[BAR_PRECISION] >= BAR if barred else None,
    )
