"""What the engine's tests share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from starsd.engine.interface import Logits, Row, Runner
from starsd.engine.pretrained import load_runner
from starsd.engine.runner import TorchRunner
from starsd.settings import DraftSettings, ModelSettings

SMALL = {"max_sequences": 6, "max_length": 256}


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


def chunked(runner: Runner, slot: int, tokens: Sequence[int], sizes: Sequence[int]) -> Logits:
    """All logits of ``tokens`` fed in chunks of ``sizes``."""
    parts, start = [], 0
    for size in sizes:
        piece = tokens[start : start + size]
        parts.append(runner.forward([Row(slot, piece, start, want=len(piece))])[0].copy())
        start += size
    assert start == len(tokens)
    return np.concatenate(parts)
