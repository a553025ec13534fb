"""Keys and values of the compiled decoder, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from starsd.engine.interface import KV_BLOCK
from starsd.engine.kv_budget import blocks_of
from starsd.engine.native.weights import LANES
from starsd.engine.slot_memory import SlotMemory

Brains = npt.NDArray[np.uint16]
"""bfloat16, which numpy has no type for."""


class NativeCache:
    """``keys [slots, layers, kv_heads, length / 16, dim / 2, 16, 2]`` and ``values [slots, layers,
    kv_heads, length / 2, dim, 2]``; a slot takes memory as far as it was written."""

    def __init__(self, slots: int, layers: int, kv_heads: int, max_length: int, dim: int) -> None:
        """Raises ConfigError: no addresses for so much."""
        self.length = blocks_of(max_length) * KV_BLOCK
        self.position_bytes = 2 * layers * kv_heads * dim * np.dtype(np.uint16).itemsize
        lanes = (slots, layers, kv_heads)
        self._head_bytes = dim * np.dtype(np.uint16).itemsize
        """Of one position, keys or values."""
        size = layers * kv_heads, self.length * self._head_bytes
        self._memories = SlotMemory(slots, *size), SlotMemory(slots, *size)
        keys, values = (memory.bytes.view(np.uint16) for memory in self._memories)
        self.keys: Brains = keys.reshape(*lanes, self.length // LANES, dim // 2, LANES, 2)
        self.values: Brains = values.reshape(*lanes, self.length // 2, dim, 2)
        self._kept = (self.keys, LANES), (self.values, 2)
        """Positions lie in blocks of so many."""

    def release(self, slot: int, length: int = 0) -> None:
        """Give a slot's memory back, but for the blocks of its first ``length`` positions."""
        for memory in self._memories:
            memory.release(slot, blocks_of(length) * KV_BLOCK * self._head_bytes)

    def copy(self, source: int, slot: int, length: int) -> None:
        for kept, size in self._kept:
            blocks = -(-length // size)
            kept[slot, :, :, :blocks] = kept[source, :, :, :blocks]

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Move what lies at ``start + path[i]`` to ``start + i``."""
        source, target = start + np.asarray(path, dtype=int), start + np.arange(len(path))
        for kept, size in self._kept:
            (block, place), (new_block, new_place) = divmod(source, size), divmod(target, size)
            own = kept[slot]
            own[:, :, new_block, :, new_place] = own[:, :, block, :, place]
