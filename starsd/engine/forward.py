"""Which forward a loaded model gets: our own where its family is known, else transformers'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from starsd.engine.attention import BATCH
from starsd.engine.batch import Packed
from starsd.engine.decoder import Decoder, is_family
from starsd.engine.invariant import make_linears_tiled
from starsd.engine.linears import Dense, Linear, Pack, Prepacked, Tiled
from starsd.settings import ModelSettings

Forward = Callable[[Packed], Tensor]
"""Logits ``[wanted, vocabulary]`` of one ragged batch; writes its keys and values."""


def make_forward(model: Any, settings: ModelSettings, max_length: int) -> Forward:
    """``model`` was loaded with our attention; its weights are taken over."""
    if is_family(model):
        return Decoder(model, _packing(model, settings), max_length)
    if settings.batch_invariant:
        make_linears_tiled(model)
    return _own_forward(model)


def _own_forward(model: Any) -> Forward:
    def forward(packed: Packed) -> Tensor:
        output = model(
            input_ids=packed.ids,
            position_ids=packed.positions,
            logits_to_keep=packed.wanted,
            use_cache=False,
            **{BATCH: packed.batch},
        )
        logits: Tensor = output.logits[0]
        return logits

    return forward


def _packing(model: Any, settings: ModelSettings) -> Pack:
    kind = Prepacked if _prepacks(model) else Dense
    if not settings.batch_invariant:
        return kind

    def tiled(weight: Tensor, bias: Tensor | None) -> Linear:
        return Tiled(kind(weight, bias))

    return tiled


def _prepacks(model: Any) -> bool:
    """float32 gains nothing by it at one row."""
    return model.device.type == "cpu" and model.dtype is torch.bfloat16
