"""Does batch-invariant mode hold on this machine, with this model? Checked at start, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from starsd.engine.interface import Logits, Row, Runner

_TOKENS = 83
_CHUNKS = ((83,), (1, 5, 16, 3, 16, 42), (50, 33), (1,) * 8 + (57, 18))


@dataclass(frozen=True)
class SelfTest:
    """``different`` of ``compared`` logit rows were not bitwise equal; ``largest`` difference."""

    compared: int
    different: int
    largest: float

    @property
    def ok(self) -> bool:
        return self.different == 0


def check_invariance(runner: Runner, seed: int = 0) -> SelfTest:
    """Run one random sequence alone, in chunks, in other slots and among neighbours; compare.

    Overwrites every slot, so only at start; their memory is given back.
    """
    rng = np.random.default_rng(seed)
    length = min(_TOKENS, runner.max_length)
    tokens = rng.integers(0, runner.vocab_size, length).tolist()
    alone = runner.forward([Row(0, tokens, 0, want=length)])[0].copy()
    compared, different, largest = 0, 0, 0.0
    for variant in _variants(runner, tokens, rng):
        compared += length
        different += int((variant != alone).any(axis=1).sum())
        largest = max(largest, float(np.abs(variant - alone).max()))
    for slot in range(runner.slots):
        runner.release(slot)
    return SelfTest(compared, different, largest)


def _variants(runner: Runner, tokens: Sequence[int], rng: np.random.Generator) -> Iterator[Logits]:
    for number, chunks in enumerate(_CHUNKS):
        slot = (number * 5 + runner.slots - 1) % runner.slots
        yield _chunked(runner, tokens, chunks, slot, rng)


def _chunked(
    runner: Runner,
    tokens: Sequence[int],
    chunks: Sequence[int],
    slot: int,
    rng: np.random.Generator,
) -> Logits:
    """All logits of ``tokens``, fed chunk by chunk into ``slot`` among changing neighbours."""
    parts: list[Logits] = []
    start = 0
    for size in chunks:
        piece = tokens[start : start + size]
        if not piece:
            break
        rows = _neighbours(runner, slot, rng)
        place = int(rng.integers(0, len(rows) + 1))
        rows.insert(place, Row(slot, piece, start, want=len(piece)))
        parts.append(runner.forward(rows)[place].copy())
        start += size
    return np.concatenate(parts)


def _neighbours(runner: Runner, slot: int, rng: np.random.Generator) -> list[Row]:
    """Up to five random rows in other slots, short and long."""
    others = [other for other in range(runner.slots) if other != slot]
    chosen = rng.permutation(others)[: rng.integers(0, 6)].tolist()
    return [_random_row(runner, other, rng) for other in chosen]


def _random_row(runner: Runner, slot: int, rng: np.random.Generator) -> Row:
    size = int(rng.integers(1, min(40, runner.max_length) + 1))
    start = int(rng.integers(0, runner.max_length - size + 1))
    return Row(slot, rng.integers(0, runner.vocab_size, size).tolist(), min(start, 100))
