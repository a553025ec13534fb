"""Linear layers in the forms that CPUs multiply fastest; each is a function of rows.

``pack`` chooses. A packed layer holds its own copy of the weights in the layout of its kernel, so
the original can be freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from starsd.engine.batch import TILE
from starsd.engine.invariant import in_tiles


class Linear(Protocol):
    """``y = x W^T + b`` for ``x [rows, in]``."""

    def __call__(self, x: Tensor) -> Tensor: ...


Pack = Callable[[Tensor, Tensor | None], Linear]
"""Makes a layer of ``weight [out, in]`` and ``bias [out]``."""


class Dense:
    """The plain product, on any device."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight, self._bias)


class Prepacked:
    """oneDNN's own weight layout: the reordering that a plain product repeats is done once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, TILE)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return product


def has_bfloat16(device: torch.device) -> bool:
    """Whether torch multiplies bfloat16 fast there; on CPUs with AVX2 alone it takes ten times
    as long as float32."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return device.type != "cpu" or bool(supported and supported())


def prepacks(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether ``Prepacked`` works here and pays; float32 gains nothing by it at one row."""
    return device.type == "cpu" and dtype is torch.bfloat16 and has_bfloat16(device)


class Tiled:
    """Multiplies ``TILE`` rows at a time, so that a row's bits depend on the row alone."""

    def __init__(self, layer: Linear) -> None:
        self._layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        return in_tiles(self._layer, x)
