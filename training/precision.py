"""In which precision a device trains fastest."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from starsd.engine.linears import has_bfloat16

SHAPE = (1024, 576, 1536)
REPEATS = 5


def training_dtype(
    device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> torch.dtype:
    """Of matrix products. Processors with tiles multiply bfloat16 many times as fast as float32,
    some others with AVX-512 half as fast: 20 ms tell."""
    if not has_bfloat16(device):
        return torch.float32
    if device.type != "cpu":
        return torch.bfloat16
    rows, inner, columns = SHAPE
    both = {
        dtype: (torch.ones(rows, inner, dtype=dtype), torch.ones(columns, inner, dtype=dtype))
        for dtype in (torch.bfloat16, torch.float32)
    }
    least_s = dict.fromkeys(both, float("inf"))
    for _ in range(REPEATS):  # in turn, for others may compute beside us
        for dtype, (left, right) in both.items():
            started = clock()
            left @ right.T
            least_s[dtype] = min(least_s[dtype], clock() - started)
    return min(least_s, key=least_s.__getitem__)
