"""Which forward a loaded model gets: our own where its family is known, else transformers'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from starsd.engine.attention import BATCH
from starsd.engine.batch import Packed
from starsd.engine.cuda import CudaGraphs, Graphs
from starsd.engine.decoder import Decoder, Outcome, is_family
from starsd.engine.invariant import make_linears_tiled
from starsd.engine.linears import Dense, Linear, Pack, Prepacked, Tiled, prepacks
from starsd.engine.rows import check_taps
from starsd.settings.model import ModelSettings


class Forward(Protocol):
    """Computes one ragged batch; writes its keys and values."""

    def tap(self, layers: Sequence[int]) -> None:
        """See ``Runner.tap``."""

    def __call__(self, packed: Packed) -> Outcome: ...


def make_forward(model: Any, settings: ModelSettings, max_length: int) -> Forward:
    """``model`` was loaded with our attention; its weights are taken over."""
    if is_family(model):
        return Decoder(model, packing(settings, model.device, model.dtype), max_length)
    if settings.batch_invariant:
        make_linears_tiled(model)
    return TransformersForward(model)


def make_graphs(settings: ModelSettings, device: torch.device) -> Graphs | None:
    """What records steps; None where each runs as it comes."""
    return CudaGraphs(device) if settings.cuda_graphs and device.type == "cuda" else None


class TransformersForward:
    """A model's own."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._taps: tuple[int, ...] = ()

    def tap(self, layers: Sequence[int]) -> None:
        """See ``Runner.tap``."""
        check_taps(layers, self._model.config.get_text_config().num_hidden_layers)
        self._taps = tuple(layers)

    def __call__(self, packed: Packed) -> Outcome:
        output = self._model(
            input_ids=packed.ids,
            position_ids=packed.positions,
            logits_to_keep=packed.wanted,
            use_cache=False,
            output_hidden_states=bool(self._taps),
            **{BATCH: packed.batch},
        )
        logits: Tensor = output.logits[0]
        passed = [output.hidden_states[index][0] for index in self._taps]
        features = torch.cat(passed, -1) if passed else logits.new_empty(packed.ids.shape[1], 0)
        return Outcome(logits, features)


def packing(settings: ModelSettings, device: torch.device, dtype: torch.dtype) -> Pack:
    """Which form linear layers take."""
    kind = Prepacked if prepacks(device, dtype) else Dense
    if not settings.batch_invariant:
        return kind

    def tiled(weight: Tensor, bias: Tensor | None) -> Linear:
        return Tiled(kind(weight, bias))

    return tiled
