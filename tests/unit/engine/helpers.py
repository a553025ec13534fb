"""What the engine's tests share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from starsd.engine import pretrained
from starsd.engine.interface import Logits, Row, Runner
from starsd.engine.loading import load_runner
from starsd.engine.runner import TorchRunner
from starsd.settings.draft import DraftSettings
from starsd.settings.model import ModelSettings
from tests.unit.engine.tape import Tape

SMALL = {"max_sequences": 6, "max_length": 256, "dtype": "float32"}


def settings(model: Path | str, **changes: Any) -> ModelSettings:
    values: dict[str, Any] = {"model": str(model), **SMALL, **changes}
    return ModelSettings(**values)


def draft_settings(model: Path | str, **changes: Any) -> DraftSettings:
    values: dict[str, Any] = {"model": str(model), **SMALL, **changes}
    return DraftSettings(**values)


def make_runner(folder: Path, **changes: Any) -> TorchRunner:
    runner: Any = load_runner(folder, settings(folder, **changes))
    made: TorchRunner = runner
    return made


def make_replaying(folder: Path, **changes: Any) -> tuple[TorchRunner, Tape]:
    """A runner that records and replays its short steps, as one on CUDA does."""
    tape = Tape()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "make_graphs", lambda *_: tape)
        return make_runner(folder, **changes), tape


def random_tokens(count: int, seed: int, vocab: int = 320) -> list[int]:
    tokens: list[int] = np.random.default_rng(seed).integers(0, vocab, count).tolist()
    return tokens


def plain_logits(folder: Path, tokens: Sequence[int]) -> Logits:
    """``[len(tokens), vocab]`` of transformers' own forward: eager, no cache, one sequence."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        logits: Logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0].numpy()
    return logits


def walk(runner: TorchRunner, seed: int, steps: int) -> list[Logits]:
    """Logits of random steps: prefills, chains, trees, rollbacks, slots that sit out a step."""
    rng = np.random.default_rng(seed)
    lengths = [0] * runner.slots
    found: list[Logits] = []
    for _ in range(steps):
        moving = rng.permutation(runner.slots)[: rng.integers(1, runner.slots + 1)].tolist()
        rows = [_next_row(runner, slot, lengths[slot], rng) for slot in moving]
        found.extend(part.copy() for part in runner.forward(rows))
        for row in rows:
            path = _random_path(row, rng)
            runner.compact(row.slot, row.start, path)
            lengths[row.slot] = row.start + len(path)
    return found


def _next_row(runner: TorchRunner, slot: int, length: int, rng: np.random.Generator) -> Row:
    start = max(0, length - int(rng.integers(0, 3)))
    size = int(rng.choice([1, 1, 2, 5, 9, 16] if start else [3, 40, 230, 300]))
    if start + size > runner.max_length:
        start, size = 0, 7
    tokens = rng.integers(0, runner.vocab_size, size).tolist()
    parents = [int(rng.integers(-1, index)) if index else -1 for index in range(size)]
    tree = 1 < size <= 16 and rng.random() < 0.3
    want = int(rng.integers(0, size + 1))
    return Row(slot, tokens, start, want, parents if tree else None)


def _random_path(row: Row, rng: np.random.Generator) -> list[int]:
    if row.parents is None:
        return list(range(len(row.tokens)))
    path = [int(rng.integers(0, len(row.parents)))]
    while (parent := row.parents[path[0]]) >= 0:
        path.insert(0, parent)
    return path


def chunked(runner: Runner, slot: int, tokens: Sequence[int], sizes: Sequence[int]) -> Logits:
    """All logits of ``tokens`` fed in chunks of ``sizes``."""
    parts, start = [], 0
    for size in sizes:
        piece = tokens[start : start + size]
        parts.append(runner.forward([Row(slot, piece, start, want=len(piece))])[0].copy())
        start += size
    assert start == len(tokens)
    return np.concatenate(parts)
