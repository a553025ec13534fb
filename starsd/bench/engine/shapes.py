"""How often the shape of a batch alone changes a token, where torch computes in normal mode."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starsd.bench.engine.answers import Answer
from starsd.engine.interface import Row, Runner
from starsd.sampling.sampler import sample

DTYPE = "bfloat16"
ROWS = 8
TOKENS = 64
"""Of each answer; all rows of a batch are then there at every step."""
POSITIONS = 1024


@dataclass(frozen=True)
class Shapes:
    """``flips`` of ``positions`` tokens differ between a row alone and one of ``rows``."""

    dtype: str
    rows: int
    positions: int
    flips: int
    rate: float | None


def measure(runner: Runner, answers: Iterable[Answer], deadline: float) -> Shapes:
    """``runner`` is torch's, of ``DTYPE``. ``rate`` is None where answers are too few, or time."""
    whole = [answer for answer in answers if len(answer.tokens) >= TOKENS]
    positions = flips = 0
    for first in range(0, POSITIONS // TOKENS, ROWS):
        batch = whole[first : first + ROWS]
        if len(batch) < ROWS or time.monotonic() > deadline:
            break
        together = decode(runner, batch)
        alone = [decode(runner, [answer])[0] for answer in batch]
        positions += ROWS * TOKENS
        flips += sum(
            a != b
            for ours, theirs in zip(together, alone, strict=True)
            for a, b in zip(ours, theirs, strict=True)
        )
    return Shapes(DTYPE, ROWS, positions, flips, flips / positions if positions else None)


def decode(runner: Runner, answers: Sequence[Answer]) -> list[list[int]]:
    """What the runner would say at each place of each answer, step by step, all in one batch."""
    found: list[list[int]] = [[] for _ in answers]
    for slot, answer in enumerate(answers):
        runner.forward([Row(slot, answer.ids[:-1], 0, want=0)])
    for place in range(TOKENS):
        rows = [_row(slot, answer, place) for slot, answer in enumerate(answers)]
        for own, answer, logits in zip(found, answers, runner.forward(rows), strict=True):
            end = len(answer.ids) + place
            own.append(sample(logits[0], answer.job.sampling, end, answer.text[:end]))
    return found


def _row(slot: int, answer: Answer, place: int) -> Row:
    start = len(answer.ids) + place - 1
    return Row(slot, [answer.text[start]], start)
