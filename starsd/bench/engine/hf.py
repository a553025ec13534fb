"""transformers itself as the yardstick: eager, with its own dynamic cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging


class EagerBatch:
    """So many sequences of one length, decoded greedily in bfloat16."""

    def __init__(self, folder: Path, sequences: int, context: int) -> None:
        self._model = _loaded(folder)
        self._cache: Any = _filled(self._model.config, sequences, context)
        self._ids = torch.full((sequences, 1), 5)

    @torch.inference_mode()
    def decode(self, steps: int) -> None:
        """From the same context each time."""
        ids = self._ids
        for _ in range(steps):
            found = self._model(input_ids=ids, cache=self._cache, use_cache=True)
            ids = found.logits[:, -1].argmax(-1, keepdim=True)
        self._cache.crop(-steps)


def _loaded(folder: Path) -> Any:
    """Ready to infer, as ``from_pretrained`` leaves it."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


def _filled(config: Any, sequences: int, context: int) -> Any:
    """Keys and values of nothing in particular."""
    cache = DynamicCache(config=config)
    heads = config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        keys, values = torch.randn(2, sequences, heads, context, dim, dtype=torch.bfloat16)
        cache.update(keys, values, layer)
    return cache
