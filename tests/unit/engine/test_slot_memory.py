from __future__ import annotations

import mmap
import sys

import numpy as np
import psutil
import pytest

from starsd.engine.slot_memory import SlotMemory
from starsd.errors import ConfigError

MB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory goes back on Linux only")


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@linux
def test_memory_is_taken_where_it_is_written_and_given_back() -> None:
    """64 slots of 64 MB, more than a small machine has."""
    memory = SlotMemory(64, 1, 64 * MB)
    slots = memory.bytes.reshape(64, 64 * MB)
    before = resident()
    slots[3, : 16 * MB] = 1
    slots[60, :4096] = 1
    assert 15 * MB < resident() - before < 20 * MB
    assert slots[3, 20 * MB :: MB].sum() == 0
    memory.release(3)
    assert resident() - before < 4 * MB
    assert slots[3, ::4096].sum() == 0
    assert slots[60, 4095] == 1


@linux
def test_neighbours_on_the_same_page_stay() -> None:
    """Slots of one page and a half."""
    size = mmap.PAGESIZE * 3 // 2
    memory = SlotMemory(4, 1, size)
    slots = memory.bytes.reshape(4, size)
    slots[:] = 7
    memory.release(1)
    assert (slots[0] == 7).all()
    assert (slots[2] == 7).all()
    assert slots[1, mmap.PAGESIZE // 2 :].sum() == 0


@linux
def test_the_beginnings_of_lanes_stay() -> None:
    """Two slots of four lanes of 16 MB."""
    memory = SlotMemory(2, 4, 16 * MB)
    lanes = memory.bytes.reshape(2, 4, 16 * MB)
    before = resident()
    lanes[0, :, : 8 * MB] = 7
    lanes[1, :, 0] = 7
    memory.release(0, 2 * MB + 1)
    assert 7 * MB < resident() - before < 12 * MB
    assert (lanes[0, :, : 2 * MB + 1] == 7).all()
    assert lanes[0, :, 2 * MB + mmap.PAGESIZE :: MB].sum() == 0
    assert (lanes[1, :, 0] == 7).all()
    memory.release(0, 16 * MB)
    assert (lanes[0, :, : 2 * MB + 1] == 7).all()
    memory.release(0)
    assert lanes[0, :, 0].sum() == 0


def test_addresses_outlive_the_object() -> None:
    held = SlotMemory(2, 1, 4096).bytes
    held[-1] = 5
    assert np.count_nonzero(held) == 1


def test_more_than_the_machine_can_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="1024 slots"):
        SlotMemory(1024, 1, 2**50)
