"""Quantised matrices in the layout of decoder.c: groups of 32 inputs, tiles of 16 outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LANES = 16
GROUP = 32
QUADS = GROUP // 4

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Quantised:
    """``w = scale * q + least`` by groups: ``q [outputs, groups, 32]``, ``scale, least [outputs,
    groups]`` in float16."""

    bits: int
    q: Bytes
    scale: npt.NDArray[np.float16]
    least: npt.NDArray[np.float16]

    def dense(self) -> Floats:
        """``[outputs, inputs]``: what the decoder multiplies by."""
        scale, least = self.scale.astype(np.float32), self.least.astype(np.float32)
        whole: Floats = scale[..., None] * self.q + least[..., None]
        return whole.reshape(len(whole), -1)


def quantise(weight: Floats, bits: int) -> Quantised:
    """``weight [outputs, inputs]`` in 4 bits (least to most, as GGUF's Q4_1) or 8 (symmetric, as
    Q8_0); inputs are whole groups. Weights that were such blocks come back as they were.
    """
    groups = weight.reshape(len(weight), -1, GROUP)
    if bits == 8:
        scale = (np.abs(groups).max(2) / 127).astype(np.float16)
        least = scale * np.float16(-128)
    else:
        least = groups.min(2).astype(np.float16)
        scale = ((groups.max(2) - least) / 15).astype(np.float16)
    step = np.where(scale > 0, scale, np.float16(1)).astype(np.float32)
    q = np.rint((groups - least[..., None].astype(np.float32)) / step[..., None])
    return Quantised(bits, q.clip(0, 2**bits - 1).astype(np.uint8), scale, least)


def tiles(matrix: Quantised) -> Bytes:
    """``[columns, groups, bytes]``: matrices.h's tiles; outputs are filled up to whole ones."""
    q = _filled(matrix.q)
    columns, groups = len(q) // LANES, q.shape[1]
    quads = q.reshape(columns, LANES, groups, QUADS, 4).transpose(0, 2, 3, 1, 4)
    if matrix.bits == 4:
        low, high = quads[:, :, : QUADS // 2], quads[:, :, QUADS // 2 :]
        quads = low | np.left_shift(high, np.uint8(4))
    facts = [
        _filled(part).reshape(columns, LANES, groups).transpose(0, 2, 1)
        for part in (matrix.scale, matrix.least)
    ]
    parts = [np.ascontiguousarray(part).view(np.uint8) for part in facts]
    return np.concatenate([*parts, quads.reshape(columns, groups, -1)], axis=2)


def brain_tiles(weight: Floats) -> Bytes:
    """The same of ``weight [outputs, inputs]`` in bfloat16, ties to even."""
    bits = np.ascontiguousarray(_filled(weight)).view(np.uint32)
    halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    columns, groups = len(halves) // LANES, halves.shape[1] // GROUP
    pairs = halves.reshape(columns, LANES, groups, GROUP // 2, 2).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(pairs.reshape(columns, groups, -1)).view(np.uint8)


def _filled(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Zero outputs up to a whole tile."""
    missing = -len(array) % LANES
    return np.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1)))
