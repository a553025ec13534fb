"""Counting blocks: never more than there are, none lost, none stranded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.engine.interface import KV_BLOCK
from starsd.engine.kv_budget import KvBudget, KvPlan, blocks_of, plan_kv
from starsd.errors import ConfigError

POSITION = 1024
BLOCK = POSITION * KV_BLOCK


@pytest.mark.parametrize(
    ("memory", "lazily", "plan"),
    [
        (100 * BLOCK, True, KvPlan(8, 32)),
        (10 * BLOCK + 5, True, KvPlan(8, 10)),
        (4 * BLOCK, True, KvPlan(8, 4)),
        (100 * BLOCK, False, KvPlan(8, 32)),
        (11 * BLOCK, False, KvPlan(2, 8)),
    ],
)
def test_what_memory_is_good_for(memory: int, lazily: bool, plan: KvPlan) -> None:
    """Eight slots of 200 positions, four blocks each."""
    assert plan_kv(memory, POSITION, 8, 200, lazily=lazily) == plan


def test_too_little_memory_is_told_with_what_would_fit() -> None:
    said = (
        r"STARSD_KV_MEMORY='192\.0KiB': one sequence of STARSD_MAX_LENGTH=200 positions takes "
        r"256\.0KiB; raise the one, or lower the other to 192"
    )
    with pytest.raises(ConfigError, match=said):
        plan_kv(3 * BLOCK, POSITION, 8, 200, lazily=True)
    assert plan_kv(3 * BLOCK, POSITION, 8, 192, lazily=True).blocks == 3


def test_growing_takes_whole_blocks_and_only_new_ones() -> None:
    budget = KvBudget(4)
    for length, used in ((1, 1), (64, 1), (65, 2), (10, 2), (129, 3)):
        assert budget.grow(7, length)
        assert budget.used == used
    assert budget.reach(7) == 4 * KV_BLOCK
    assert budget.reach(8) == KV_BLOCK
    assert [budget.more(7, length) for length in (0, 192, 193)] == [0, 0, 1]
    assert not budget.grow(8, 65)
    assert budget.used == 3
    budget.free(7)
    budget.free(7)
    assert budget.unused == 4


def test_cutting_gives_whole_blocks_back() -> None:
    budget = KvBudget(8)
    budget.grow(7, 300)
    budget.grow(8, 100)
    for length, used in ((300, 7), (257, 7), (256, 6), (500, 6), (1, 3), (0, 2), (0, 2)):
        budget.cut(7, length)
        assert budget.used == used
    budget.cut(9, 0)
    assert budget.more(7, 64) == 1
    assert budget.grow(7, 6 * KV_BLOCK)


steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 700)), max_size=200)


@given(blocks=st.integers(1, 30), steps=steps)
def test_never_over_budget_and_nothing_is_lost(blocks: int, steps: list[tuple[int, int]]) -> None:
    """Against plain arithmetic; a length of 0 frees the slot."""
    budget, held = KvBudget(blocks), dict.fromkeys(range(6), 0)
    for slot, length in steps:
        if not length:
            budget.free(slot)
            held[slot] = 0
            continue
        wanted = max(held[slot], blocks_of(length))
        fits = sum(held.values()) - held[slot] + wanted <= blocks
        assert budget.reach(slot) == (blocks - sum(held.values()) + held[slot]) * KV_BLOCK
        assert budget.grow(slot, length) is fits
        if fits:
            held[slot] = wanted
        assert budget.used == sum(held.values()) <= blocks


def test_ten_thousand_requests_leave_no_holes() -> None:
    """However memory was used before, all of it can be had by one."""
    choose = random.Random(4)
    budget, open_slots = KvBudget(100), list[int]()
    for request in range(10_000):
        while not budget.grow(request, choose.randint(1, 2000)):
            budget.free(open_slots.pop(choose.randrange(len(open_slots))))
        open_slots.append(request)
        assert budget.used <= 100
    for request in open_slots:
        budget.free(request)
    assert budget.used == 0
    assert budget.grow(0, 100 * KV_BLOCK)
