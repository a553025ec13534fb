"""What both runners do with KV memory: bounded, given back, copied bit by bit."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from starsd.engine.interface import KV_BLOCK, Row
from starsd.engine.kv_budget import KvBudget
from starsd.engine.native.runner import NativeRunner
from starsd.engine.runner import TorchRunner
from starsd.errors import ConfigError
from tests.unit.engine.helpers import make_runner, random_tokens

MB = 2**20
Make = Callable[..., TorchRunner | NativeRunner]


@pytest.fixture(scope="module", params=["torch", "native"])
def make(request: pytest.FixtureRequest, tiny_model: Path, native_cache: Path) -> Make:
    """Both are batch-invariant, so that equal means equal bits."""
    kind: dict[str, Any] = {"batch_invariant": True}
    if request.param == "native":
        kind = {"quantize": "int8", "cache_dir": native_cache}
    return lambda **changes: make_runner(tiny_model, **kind, **changes)


def position_bytes(runner: TorchRunner | NativeRunner) -> int:
    """Keys and values of four layers and two heads of 16; the compiled decoder keeps halves."""
    return 2 * 4 * 2 * 16 * (2 if isinstance(runner, NativeRunner) else 4)


def test_max_sequences_and_max_length(make: Make) -> None:
    runner = make(max_sequences=3, max_length=100)
    assert (runner.slots, runner.max_length, runner.kv_blocks) == (3, 100, 6)
    assert runner.cache_bytes == 3 * 128 * position_bytes(runner)


def test_kv_memory(make: Make) -> None:
    """Fewer blocks than the slots could use; the slots stay. Too few for one are refused."""
    block = KV_BLOCK * position_bytes(make())
    runner = make(max_sequences=6, max_length=256, kv_memory=9 * block)
    assert (runner.slots, runner.kv_blocks, runner.cache_bytes) == (6, 9, 9 * block)
    with pytest.raises(ConfigError, match=r"STARSD_MAX_LENGTH=256 .* lower the other to 192"):
        make(max_length=256, kv_memory=4 * block - 1)


def test_a_released_slot_starts_anew(make: Make) -> None:
    runner, text = make(), random_tokens(90, 1)
    whole = runner.forward([Row(2, text, 0, want=90)])[0].copy()
    runner.forward([Row(2, random_tokens(200, 2), 0), Row(3, text, 0)])
    runner.release(2)
    np.testing.assert_array_equal(runner.forward([Row(2, text, 0, want=90)])[0], whole)
    np.testing.assert_array_equal(runner.forward([Row(3, text[-1:], 89)])[0][0], whole[-1])


@pytest.mark.parametrize("length", [1, 16, 70, 89])
def test_a_copy_is_as_good_as_computing(make: Make, length: int) -> None:
    """Bit by bit, whatever the chunks, with the donor going on meanwhile."""
    runner, text = make(), random_tokens(90, 3)
    alone = runner.forward([Row(0, text, 0, want=90)])[0].copy()
    other = [*text[:length], *random_tokens(40, 4)]
    runner.forward([Row(1, random_tokens(200, 5), 0)])
    runner.release(1)
    runner.forward([Row(4, other[:7], 0)])
    runner.forward([Row(4, other[7:], 7)])
    runner.copy(4, 1, length)
    both = [Row(1, text[length:], length, want=90 - length), Row(4, [9], len(other))]
    np.testing.assert_array_equal(runner.forward(both)[0], alone[length:])


@pytest.mark.parametrize("length", [1, 63, 64, 100, 160])
def test_a_cut_slot_goes_on_where_it_was_cut(make: Make, length: int) -> None:
    """Bit by bit, and its neighbours are as they were."""
    runner, text, other = make(), random_tokens(200, 3), random_tokens(90, 4)
    whole = [*text[:length], *other]
    alone = runner.forward([Row(0, whole, 0, want=90)])[0].copy()
    runner.forward([Row(1, text, 0), Row(2, text, 0), Row(3, text, 0)])
    after = runner.forward([Row(2, [5], 200)])[0].copy()
    runner.release(2, length)
    chunks = [Row(2, other[:30], length, want=30), Row(2, other[30:], length + 30, want=60)]
    found = np.concatenate([runner.forward([row])[0] for row in chunks])
    np.testing.assert_array_equal(found, alone)
    for slot in (1, 3):
        np.testing.assert_array_equal(runner.forward([Row(slot, [5], 200)])[0], after)


@pytest.mark.skipif(sys.platform != "linux", reason="memory goes back on Linux only")
@pytest.mark.parametrize(("kind", "count"), [("torch", 2000), ("native", 10_000)])
def test_thousands_of_requests_stay_within_the_budget(
    tiny_model: Path, native_cache: Path, kind: str, count: int
) -> None:
    """Through 512 slots, which without release would come to hold many times the budget."""
    native: dict[str, Any] = {"quantize": "int8", "cache_dir": native_cache}
    size = {"max_sequences": 512, "max_length": 512, "kv_memory": 8 * MB}
    runner = make_runner(tiny_model, **size, **(native if kind == "native" else {}))
    budget, choose, text = KvBudget(runner.kv_blocks), random.Random(5), random_tokens(512, 6)
    free, taken = list(range(512)), list[int]()
    # As large as the largest below: what the heap keeps of it is not the slots'.
    runner.forward([Row(slot, text[: 400 if slot < 3 else 12], 0, want=0) for slot in range(32)])
    for slot in range(32):
        runner.release(slot)
    before, most, served = resident(), 0, 0
    while served < count:
        lengths = [choose.randint(1, 400 if choose.random() < 0.01 else 12) for _ in range(32)]
        rows = []
        for length in lengths:
            if budget.more(free[0], length) <= budget.unused:
                taken.append(free.pop(choose.randrange(len(free))))
                budget.grow(taken[-1], length)
                rows.append(Row(taken[-1], text[:length], 0, want=0))
        runner.forward(rows)
        served += len(rows)
        most = max(most, resident() - before)
        choose.shuffle(taken)
        while len(taken) > 20:
            budget.free(taken[-1])
            runner.release(taken[-1])
            free.append(taken.pop())
    assert budget.used <= 20 * 8
    assert most < 12 * MB
    for slot in taken:
        runner.release(slot)
    assert resident() - before < 4 * MB


def resident() -> int:
    return int(psutil.Process().memory_info().rss)
