"""Memory for KV slots that the system hands out only where something was written."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np

from starsd.errors import ConfigError

_LINUX = sys.platform == "linux"
_NORESERVE = 0x4000 if _LINUX else 0
"""MAP_NORESERVE: what is never written counts towards no limit."""


class SlotMemory:
    """``slots`` equal parts of one anonymous mapping, of ``lanes`` equal parts each: zeros until
    written.

    Writing commits a page, ``release`` gives a slot's pages back. Huge pages are off, since each
    would commit 2 MB at once. Elsewhere than on Linux nothing goes back until the end.
    """

    def __init__(self, slots: int, lanes: int, lane_bytes: int) -> None:
        """Raises ConfigError: the system does not even grant the addresses."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        try:
            self._map = mmap.mmap(-1, slots * lanes * lane_bytes, flags=flags)
        except OSError as error:
            size = slots * lanes * lane_bytes
            raise ConfigError(f"{size} bytes of addresses for {slots} slots: {error}") from error
        self._lanes = lanes
        self._lane_bytes = lane_bytes
        if _LINUX:
            self._map.madvise(mmap.MADV_NOHUGEPAGE)

    @property
    def bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """All slots, one after the other; valid as long as it is held."""
        return np.frombuffer(self._map, dtype=np.uint8)

    def release(self, slot: int, kept: int = 0) -> None:
        """The slot reads as zeros again, but for the first ``kept`` bytes of each lane and what
        shares a page with them or with its neighbours."""
        size, lanes = self._lane_bytes, self._lanes
        if not kept:
            self._release(slot * lanes * size, (slot + 1) * lanes * size)
        elif kept < size:
            for lane in range(slot * lanes, (slot + 1) * lanes):
                self._release(lane * size + kept, (lane + 1) * size)

    def _release(self, begin: int, end: int) -> None:
        """Whole pages between these bytes."""
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        end = end // mmap.PAGESIZE * mmap.PAGESIZE
        if _LINUX and end > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, end - first)
