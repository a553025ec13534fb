"""How often a precision's own token is another one than float32's, on the same text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from starsd.bench.engine.answers import Answer
from starsd.engine.interface import Logits, Row, Runner
from starsd.sampling.sampler import sample

Floats = npt.NDArray[np.float32]


@dataclass
class Tally:
    """Of one precision at one temperature. ``kl`` sums KL(float32 || precision) in nats."""

    positions: int = 0
    flips: int = 0
    kl: float = 0.0

    def add(self, ours: Sequence[int], theirs: Sequence[int], kl: float) -> None:
        self.positions += len(ours)
        self.flips += sum(a != b for a, b in zip(ours, theirs, strict=True))
        self.kl += kl


@dataclass(frozen=True)
class Flips:
    """``rate`` of positions whose token differs, ``kl`` in the mean; by temperature and in all
    (JSON keys are texts). For float32 itself: its batched answers against one long row."""

    precision: str
    positions: int
    flips: int
    rate: float
    kl: float
    rate_at: dict[str, float]


def measure(
    reference: Runner,
    runners: Mapping[str, Runner],
    answers: Iterable[Answer],
    deadline: float,
    tick: Callable[[], None] = lambda: None,
) -> list[Flips]:
    """Every runner reads every answer, as far as the deadline lets it; ``tick`` follows each."""
    tallies: dict[tuple[str, float], Tally] = {}
    for answer in answers:
        if time.monotonic() > deadline:
            break
        true = read(reference, answer)
        own = choices(true, answer)
        where = answer.job.temperature
        tallies.setdefault(("float32", where), Tally()).add(answer.tokens, own, 0.0)
        for name, runner in runners.items():
            found = read(runner, answer)
            kl = divergence(true, found)
            tallies.setdefault((name, where), Tally()).add(own, choices(found, answer), kl)
        tick()
    return [_flips(name, tallies) for name in dict.fromkeys(name for name, _ in tallies)]


def read(runner: Runner, answer: Answer) -> Logits:
    """Logits of each of the answer's tokens, given all before it: ``[tokens, vocabulary]``."""
    (logits,) = runner.forward([Row(0, answer.text[:-1], 0, want=len(answer.tokens))])
    return logits


def choices(logits: Logits, answer: Answer) -> list[int]:
    """The token that each row gives, with the answer's noise."""
    first, text = len(answer.ids), answer.text
    return [
        sample(row, answer.job.sampling, first + number, text[: first + number])
        for number, row in enumerate(logits)
    ]


def divergence(true: Logits, other: Logits) -> float:
    """KL(true || other) in nats, summed over the rows."""
    log_true, log_other = log_softmax(true), log_softmax(other)
    return float((np.exp(log_true) * (log_true - log_other)).sum(dtype=np.float64))


def log_softmax(logits: Logits) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


def _flips(name: str, tallies: Mapping[tuple[str, float], Tally]) -> Flips:
    ours = {where: tally for (found, where), tally in tallies.items() if found == name}
    positions = sum(tally.positions for tally in ours.values())
    flips = sum(tally.flips for tally in ours.values())
    return Flips(
        precision=name,
        positions=positions,
        flips=flips,
        rate=flips / positions,
        kl=sum(tally.kl for tally in ours.values()) / positions,
        rate_at={str(at): ours[at].flips / ours[at].positions for at in sorted(ours)},
    )
