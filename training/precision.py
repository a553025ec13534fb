"""In which precision a device trains fastest."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from starsd.engine.linears import has_bfloat16

SHAPE = (1024, 576, 1536)
REPEATS = 3


def training_dtype(
    device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> torch.dtype:
    """Of matrix products. Processors with tiles multiply bfloat16 many times as fast as float32,
    others with AVX-512 half as fast: 20 ms tell."""
    if not has_bfloat16(device):
        return torch.float32
    if device.type != "cpu":
        return torch.bfloat16
    return min((torch.bfloat16, torch.float32), key=lambda dtype: _product_s(dtype, clock))


def _product_s(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    rows, inner, columns = SHAPE
    left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(columns, inner, dtype=dtype)
    times = []
    for _ in range(1 + REPEATS):  # the first one also prepares
        started = clock()
        left @ right.T
        times.append(clock() - started)
    return min(times[1:])
