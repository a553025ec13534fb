"""KV memory in blocks of ``KV_BLOCK`` positions: how many there are, and who holds how many."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ByteSize

from starsd.engine.interface import KV_BLOCK
from starsd.errors import ConfigError


def blocks_of(length: int) -> int:
    """Blocks that so many positions take."""
    return -(-length // KV_BLOCK)


class KvPlan(NamedTuple):
    """Slots, and the blocks that all of them together may hold."""

    slots: int
    blocks: int


def plan_kv(
    memory: int, position_bytes: int, slots: int, max_length: int, *, lazily: bool
) -> KvPlan:
    """What ``memory`` bytes are good for; where memory is not taken lazily, only whole slots.

    Raises:
        ConfigError: they do not hold one sequence of ``max_length``.
    """
    per_slot = blocks_of(max_length)
    blocks = min(memory // (position_bytes * KV_BLOCK), slots * per_slot)
    if blocks < per_slot:
        needed = _text(per_slot * KV_BLOCK * position_bytes)
        raise ConfigError(
            f"STARSD_KV_MEMORY={_text(memory)!r}: one sequence of STARSD_MAX_LENGTH={max_length} "
            f"positions takes {needed}; raise the one, or lower the other to {blocks * KV_BLOCK}",
            param="STARSD_KV_MEMORY",
        )
    if lazily:
        return KvPlan(slots, blocks)
    whole = blocks // per_slot
    return KvPlan(whole, whole * per_slot)


def _text(size: int) -> str:
    return ByteSize(size).human_readable()


class KvBudget:
    """Blocks held by slot; together never more than ``blocks``."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.used = 0
        self._held: dict[int, int] = {}

    @property
    def unused(self) -> int:
        return self.blocks - self.used

    def reach(self, slot: int) -> int:
        """Positions to which this slot could grow now."""
        return (self._held.get(slot, 0) + self.unused) * KV_BLOCK

    def grow(self, slot: int, length: int) -> bool:
        """Let a slot hold ``length`` positions or more; False, and nothing changes: no room."""
        more = self.more(slot, length)
        if more > self.unused:
            return False
        self._held[slot] = self._held.get(slot, 0) + more
        self.used += more
        return True

    def more(self, slot: int, length: int) -> int:
        """Blocks that a slot lacks to hold ``length`` positions."""
        return max(0, blocks_of(length) - self._held.get(slot, 0))

    def cut(self, slot: int, length: int) -> None:
        """Let a slot hold no more than ``length`` positions."""
        over = max(0, self._held.get(slot, 0) - blocks_of(length))
        if over:
            self._held[slot] -= over
            self.used -= over

    def free(self, slot: int) -> None:
        self.used -= self._held.pop(slot, 0)
