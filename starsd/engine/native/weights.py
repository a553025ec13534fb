"""Matrices in the layouts of matrices.h: bfloat16, 8 bits and 4 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LANES = 16
GROUP = 32
DEEP = 64
QUADS = GROUP // 4
QMAX = 127

Array = np.ndarray[Any, Any]
Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Int8:
    """``w = scale * q``: ``q [outputs, inputs]`` in -127..127, ``scale [outputs]``."""

    q: npt.NDArray[np.int8]
    scale: Floats

    @classmethod
    def of(cls, weight: Floats) -> Int8:
        scale = np.abs(weight).max(1) / np.float32(QMAX)
        step = np.where(scale > 0, scale, np.float32(1))
        return cls(np.rint(weight / step[:, None]).astype(np.int8), scale)

    def dense(self) -> Floats:
        return self.scale[:, None] * self.q

    def tiles(self) -> Bytes:
        """``[columns, bytes]``; outputs and inputs are filled up to whole tiles with zeros."""
        missing = -self.q.shape[1] % DEEP
        q = _filled(np.pad(self.q, ((0, 0), (0, missing)))).view(np.uint8) ^ np.uint8(128)
        quads = q.reshape(len(q) // LANES, LANES, -1, 4).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(quads.reshape(len(quads), -1))


@dataclass(frozen=True)
class Int4:
    """``w = scale * q + least`` by groups of 32 inputs: ``q [outputs, groups, 32]`` in 0..15,
    ``scale, least [outputs, groups]``. The blocks of GGUF's Q4_1."""

    q: Bytes
    scale: Halves
    least: Halves

    @classmethod
    def of(cls, weight: Floats) -> Int4:
        """Weights that were such blocks come back as they were."""
        groups = weight.reshape(len(weight), -1, GROUP)
        least = groups.min(2).astype(np.float16)
        scale = ((groups.max(2) - least) / 15).astype(np.float16)
        step = np.where(scale > 0, scale, np.float16(1)).astype(np.float32)
        q = np.rint((groups - least[..., None].astype(np.float32)) / step[..., None])
        return cls(q.clip(0, 15).astype(np.uint8), scale, least)

    def dense(self) -> Floats:
        scale, least = self.scale.astype(np.float32), self.least.astype(np.float32)
        whole: Floats = scale[..., None] * self.q + least[..., None]
        return whole.reshape(len(whole), -1)

    def tiles(self) -> Bytes:
        """``[columns, groups, bytes]``; outputs are filled up to whole tiles with zeros."""
        q = _filled(self.q)
        columns, groups = len(q) // LANES, q.shape[1]
        quads = q.reshape(columns, LANES, groups, QUADS, 4).transpose(0, 2, 3, 1, 4)
        low, high = quads[:, :, : QUADS // 2], quads[:, :, QUADS // 2 :]
        both = low | np.left_shift(high, np.uint8(4))
        facts = [
            _filled(part).reshape(columns, LANES, groups).transpose(0, 2, 1)
            for part in (self.scale, self.least)
        ]
        parts = [np.ascontiguousarray(part).view(np.uint8) for part in facts]
        return np.concatenate([*parts, both.reshape(columns, groups, -1)], axis=2)


def brain_tiles(weight: Floats) -> Bytes:
    """``[columns, groups, bytes]`` of ``weight [outputs, inputs]`` in bfloat16, ties to even."""
    bits = np.ascontiguousarray(_filled(weight)).view(np.uint32)
    halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    columns, groups = len(halves) // LANES, halves.shape[1] // GROUP
    pairs = halves.reshape(columns, LANES, groups, GROUP // 2, 2).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(pairs.reshape(columns, groups, -1)).view(np.uint8)


def pack(weight: Floats, bits: int) -> tuple[Bytes, Floats | None]:
    """Tiles ``[columns, ...]`` of 16 outputs each, and what scales each output."""
    if bits == 16:
        return brain_tiles(weight), None
    if bits == 8:
        whole = Int8.of(weight)
        return whole.tiles(), whole.scale
    return Int4.of(weight).tiles(), None


def _filled(array: Array) -> Array:
    """With zero outputs up to a whole tile."""
    missing = -len(array) % LANES
    return np.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1)))
