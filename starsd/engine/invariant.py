"""Batch-invariant arithmetic: a row's bits depend on the row alone.

Floating-point sums depend on how a kernel splits them, and kernels choose by shape. So every shape
is fixed: linear layers see tiles of exactly ``TILE`` rows, attention sees tiles of ``TILE`` queries
and blocks of ``BLOCK`` keys in order. (The idea: He, "Defeating Nondeterminism in LLM Inference",
Thinking Machines, 2025.) ``selftest`` checks it on the machine at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from starsd.engine.batch import TILE
from starsd.engine.kv_cache import BLOCK


@dataclass(frozen=True)
class ScoreForm:
    """How a query's scores come about: ``cap`` bends them with a tanh (Gemma 2); ``sinks [heads]``
    are scores of keys without a value, one for each query head (gpt-oss)."""

    scale: float
    cap: float | None = None
    sinks: Tensor | None = None

    @property
    def plain(self) -> bool:
        return self.cap is None and self.sinks is None

    def capped(self, scores: Tensor) -> Tensor:
        return scores if self.cap is None else scores.div_(self.cap).tanh_().mul_(self.cap)

    def before(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Highest score and sum of weights before any key: ``[slots, kv_heads, q, 1]`` each, the
        caller's to change."""
        shape = (*query.shape[:3], 1)
        if self.sinks is None:
            lowest = torch.finfo(query.dtype).min  # finite: a first block may be masked whole
            return query.new_full(shape, lowest), query.new_zeros(shape)
        kv_heads, queries = shape[1:3]
        share = len(self.sinks) // kv_heads
        sinks = self.sinks.float().view(1, kv_heads, share, 1, 1)
        wide = sinks.expand(shape[0], kv_heads, share, queries // share, 1)
        return wide.reshape(shape).clone(), query.new_ones(shape)


def in_tiles(product: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """``product`` of ``rows [n, in]``, ``TILE`` at a time: a row's bits depend on the row alone."""
    count = len(rows)
    if missing := -count % TILE:
        rows = functional.pad(rows, (0, 0, 0, missing))
    tiles = [product(tile) for tile in torch.split(rows, TILE)]
    return (tiles[0] if len(tiles) == 1 else torch.cat(tiles))[:count]


class TiledLinear(nn.Linear):
    """``nn.Linear`` that only ever multiplies ``TILE`` rows at a time."""

    def forward(self, input: Tensor) -> Tensor:
        rows = input.reshape(-1, input.shape[-1])
        output = in_tiles(lambda tile: functional.linear(tile, self.weight, self.bias), rows)
        return output.view(*input.shape[:-1], self.out_features)


def make_linears_tiled(model: nn.Module) -> None:
    """Every ``nn.Linear`` of the model, the head included, becomes a ``TiledLinear``."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = TiledLinear


def blockwise_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    form: ScoreForm,
    block_size: int = BLOCK,
) -> Tensor:
    """Softmax attention, one key block after the other (online softmax).

    ``query [slots, kv_heads, q, d]``, ``keys, values [slots, kv_heads, length, d]`` views of the
    cache, ``mask [slots, 1, q, length]`` of 0 and -inf. A block that is masked whole changes no
    bit: its maximum is -inf, its weights are exactly 0 and the running sums are scaled by exactly
    1. So what is masked before or behind the keys of a query may as well be left out.
    """
    dtype, query = query.dtype, query.float() * form.scale
    highest, total = form.before(query)
    output = torch.zeros((*query.shape[:3], values.shape[-1]), device=query.device)
    for start in range(0, keys.shape[2], block_size):
        block = slice(start, start + block_size)
        scores = torch.matmul(query, keys[:, :, block].float().transpose(2, 3))
        scores = form.capped(scores).add_(mask[..., block])
        peak = torch.maximum(highest, scores.amax(-1, keepdim=True))
        weights = scores.sub_(peak).exp_()
        fade = highest.sub_(peak).exp_()
        total = total.mul_(fade).add_(weights.sum(-1, keepdim=True))
        found = torch.matmul(weights, values[:, :, block].float())
        output = output.mul_(fade).add_(found)
        highest = peak
    return output.div_(total).to(dtype)
