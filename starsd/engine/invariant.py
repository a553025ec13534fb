"""Batch-invariant arithmetic: a row's bits depend on the row alone.

Floating-point sums depend on how a kernel splits them, and kernels choose by shape. So every shape
is fixed: linear layers see tiles of exactly ``TILE`` rows, attention sees tiles of ``TILE`` queries
and blocks of ``BLOCK`` keys in order. (The idea: He, "Defeating Nondeterminism in LLM Inference",
Thinking Machines, 2025.) ``selftest`` checks it on the machine at hand.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from starsd.engine.batch import TILE
from starsd.engine.kv_cache import BLOCK


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
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float
) -> Tensor:
    """Softmax attention, one key block after the other (online softmax).

    ``query [slots, kv_heads, q, d]``, ``keys, values [slots, kv_heads, length, d]`` views of the
    cache, ``mask [slots, 1, q, length]`` of 0 and -inf with key 0 visible to every query;
    ``length`` is a multiple of ``BLOCK``. A block that is masked whole changes no bit: its maximum
    is -inf, its weights are exactly 0 and the running sums are scaled by exactly 1.
    """
    dtype, query = query.dtype, query.float() * scale
    slots, heads, queries, _ = query.shape
    highest = query.new_full((slots, heads, queries, 1), -torch.inf)
    total = torch.zeros_like(highest)
    output = torch.zeros((*query.shape[:3], values.shape[-1]), device=query.device)
    for start in range(0, keys.shape[2], BLOCK):
        block = slice(start, start + BLOCK)
        scores = torch.matmul(query, keys[:, :, block].float().transpose(2, 3))
        scores = scores.add_(mask[..., block])
        peak = torch.maximum(highest, scores.amax(-1, keepdim=True))
        weights = scores.sub_(peak).exp_()
        fade = highest.sub_(peak).exp_()
        total = total.mul_(fade).add_(weights.sum(-1, keepdim=True))
        found = torch.matmul(weights, values[:, :, block].float())
        output = output.mul_(fade).add_(found)
        highest = peak
    return output.div_(total).to(dtype)
