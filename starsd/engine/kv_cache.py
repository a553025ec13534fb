"""Keys and values of every slot and layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from starsd.engine.slot_memory import SlotMemory

BLOCK = 64
"""Slots are a whole number of key blocks long."""


@dataclass(frozen=True)
class LayerCache:
    """``keys [slots, kv_heads, length, head_dim]``, ``values`` likewise."""

    keys: Tensor
    values: Tensor


class KvCache:
    """One ``LayerCache`` per layer, shaped by the first write to it (the runner's warm-up).

    On a CPU a slot takes memory as far as it was written, elsewhere all of it is taken at once.
    Positions past a sequence's length hold whatever was there, zeros at first: the mask hides
    them, as long as they are finite.
    """

    def __init__(self, slots: int, max_length: int) -> None:
        self.slots = slots
        self.length = -(-max_length // BLOCK) * BLOCK
        self._layers: dict[int, LayerCache] = {}
        self._memories: list[tuple[SlotMemory, int]] = []
        """Each with the bytes of a position of one head."""

    @property
    def position_bytes(self) -> int:
        """Of all layers."""
        size = sum(layer.keys.nbytes + layer.values.nbytes for layer in self._layers.values())
        return size // (self.slots * self.length)

    def resize(self, slots: int) -> None:
        """Forget everything; layers are shaped anew."""
        self.slots = slots
        self._layers.clear()
        self._memories.clear()

    def write(self, index: int, keys: Tensor, values: Tensor, rows: Tensor) -> LayerCache:
        """Store ``keys, values [n, kv_heads, head_dim]`` at ``rows`` (see ``rows``); the layer."""
        layer = self._layers.get(index)
        if layer is None:
            layer = self._layers[index] = LayerCache(self._zeros(keys), self._zeros(values))
        for store, new in ((layer.keys, keys), (layer.values, values)):
            store.view(-1, store.shape[-1]).index_copy_(0, rows, new.reshape(-1, new.shape[-1]))
        return layer

    def rows(self, slots: Tensor, places: Tensor, kv_heads: int) -> Tensor:
        """Where each token's heads lie, all slots, heads and positions numbered through:
        ``slots, places [n]`` to ``[n * kv_heads]``."""
        heads = torch.arange(kv_heads, device=slots.device)
        firsts = (slots[:, None] * kv_heads + heads) * self.length
        return (firsts + places[:, None]).reshape(-1)

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Move what lies at ``start + path[i]`` to ``start + i`` (an accepted tree path)."""
        if list(path) == list(range(len(path))):
            return
        end = start + len(path)
        for layer in self._layers.values():
            source = torch.tensor([start + step for step in path], device=layer.keys.device)
            layer.keys[slot, :, start:end] = layer.keys[slot].index_select(1, source)
            layer.values[slot, :, start:end] = layer.values[slot].index_select(1, source)

    def copy(self, source: int, slot: int, length: int) -> None:
        """Take over the first ``length`` positions of another slot."""
        for layer in self._layers.values():
            for store in (layer.keys, layer.values):
                store[slot, :, :length] = store[source, :, :length]

    def release(self, slot: int, length: int = 0) -> None:
        """Give a slot's memory past ``length`` back, where memory is taken as it is written."""
        for memory, position_bytes in self._memories:
            memory.release(slot, -(-length // BLOCK) * BLOCK * position_bytes)

    def clear(self, slot: int) -> None:
        """Zero a slot: what a sequence that overflowed leaves behind would survive any mask."""
        for layer in self._layers.values():
            layer.keys[slot].zero_()
            layer.values[slot].zero_()

    def _zeros(self, like: Tensor) -> Tensor:
        _, heads, head_dim = like.shape
        shape = (self.slots, heads, self.length, head_dim)
        if like.device.type != "cpu":
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        position_bytes = head_dim * like.element_size()
        memory = SlotMemory(self.slots, heads, self.length * position_bytes)
        self._memories.append((memory, position_bytes))
        return torch.from_numpy(memory.bytes).view(like.dtype).view(shape)
