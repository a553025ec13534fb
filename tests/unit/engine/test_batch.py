from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starsd.engine.batch import TILE, Group, Packed, Packer
from starsd.engine.interface import Row
from starsd.engine.kv_cache import KvCache


def pack(*rows: Row, invariant: bool = False) -> Packed:
    packer = Packer(KvCache(8, 256), torch.float32, torch.device("cpu"), invariant=invariant)
    return packer.pack(rows)


def visible(group: Group, slot: int, query: int) -> list[int]:
    found: list[int] = (group.mask[slot - group.low, query] == 0).nonzero().flatten().tolist()
    return found


def test_rows_lie_side_by_side() -> None:
    packed = pack(Row(3, [7, 8], 10, want=1), Row(0, [5, 6, 4], 0, want=2))
    assert packed.ids.tolist() == [[7, 8, 5, 6, 4]]
    assert packed.positions.tolist() == [[10, 11, 0, 1, 2]]
    assert packed.wanted.tolist() == [1, 3, 4]
    assert packed.batch.slots.tolist() == [3, 3, 0, 0, 0]
    assert packed.batch.places.tolist() == [10, 11, 0, 1, 2]


def test_tree_positions_follow_depth_and_places_follow_index() -> None:
    packed = pack(Row(0, [5, 6, 7, 8], 20, parents=[-1, 0, 0, 2]))
    assert packed.positions.tolist() == [[20, 21, 21, 22]]
    assert packed.batch.places.tolist() == [20, 21, 22, 23]
    (group,) = packed.batch.groups
    assert visible(group, 0, 3)[20:] == [20, 22, 23]


def test_neighbouring_decode_rows_share_one_call() -> None:
    packed = pack(Row(2, [1], 40), Row(1, [1, 2], 5), Row(4, [1] * TILE, 9))
    (group,) = packed.batch.groups
    assert (group.low, group.high, group.queries, group.length) == (1, 5, TILE, 48)
    assert visible(group, 2, 0) == list(range(41))
    assert visible(group, 1, 1) == list(range(7))
    assert visible(group, 3, 0) == [0]
    assert visible(group, 1, 5) == [0]


def test_distant_slots_and_prefills_get_calls_of_their_own() -> None:
    packed = pack(Row(0, [1], 0), Row(6, [1], 0), Row(1, [1] * (TILE + 1), 0))
    assert [(group.low, group.high) for group in packed.batch.groups] == [(0, 1), (6, 7), (1, 2)]


def test_invariant_mode_fixes_every_shape() -> None:
    packed = pack(Row(0, [1] * 40, 30, want=0), Row(1, [1], 70), invariant=True)
    assert packed.ids.shape == (1, 48)
    assert {group.queries for group in packed.batch.groups} == {TILE}
    assert [group.length for group in packed.batch.groups] == [128, 64, 64, 128]
    assert len(packed.batch.slots) == 41


@pytest.mark.parametrize("invariant", [False, True])
@given(data=st.data())
def test_each_token_is_attended_once_and_sees_its_past(
    invariant: bool, data: st.DataObject
) -> None:
    slots = data.draw(st.lists(st.integers(0, 7), min_size=1, unique=True))
    rows = [
        Row(slot, [1] * data.draw(st.integers(1, 40)), data.draw(st.integers(0, 60)))
        for slot in slots
    ]
    packed = pack(*rows, invariant=invariant)
    owners = [(row.slot, row.start + i) for row in rows for i in range(len(row.tokens))]
    seen = []
    for group in packed.batch.groups:
        for token, place in zip(group.tokens.tolist(), group.places.tolist(), strict=True):
            slot, query = divmod(place, group.queries)
            assert int(group.gather[place]) == token
            assert (slot + group.low, len(visible(group, slot + group.low, query)) - 1) == owners[
                token
            ]
            seen.append(token)
        assert (group.mask == 0).any(dim=-1).all()
    assert sorted(seen) == list(range(len(owners)))


def test_folded_mask_repeats_queries_per_head() -> None:
    (group,) = pack(Row(0, [1, 2, 3], 4)).batch.groups
    folded = group.folded_mask(2)
    assert folded.shape == (1, 1, 6, group.length)
    assert torch.equal(folded[0, 0, :3], folded[0, 0, 3:])
    assert torch.equal(folded[0, 0, :3], group.mask[0])
    assert group.folded_mask(2) is folded
