"""Steps of fixed shape, recorded and replayed on the CPU, against steps as they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

from starsd.engine import forward
from starsd.engine.batch import TILE, Packer
from starsd.engine.cuda import Replay
from starsd.engine.grid import MOST_CELLS, Grid, Shape, Shapes, layout, padded_length, sight
from starsd.engine.interface import Row
from starsd.engine.kv_cache import BLOCK, KvCache
from starsd.errors import ConfigError
from tests.unit.engine.helpers import (
    chunked,
    make_replaying,
    make_runner,
    plain_logits,
    random_tokens,
    settings,
    walk,
)
from tests.unit.engine.tape import Tape
from tests.unit.engine.test_runner import SIZES

CPU = torch.device("cpu")
CLOSE = 1e-4
SLOTS, LENGTH = 6, 512


@st.composite
def short_rows(draw: st.DrawFn) -> list[Row]:
    rows = []
    for slot in sorted(draw(st.sets(st.integers(0, SLOTS - 1), min_size=1))):
        size = draw(st.integers(1, TILE))
        start = draw(st.integers(0, LENGTH - size))
        parents = [draw(st.integers(-1, index - 1)) for index in range(size)]
        tree = draw(st.booleans())
        tokens = list(range(slot * 20, slot * 20 + size))
        rows.append(Row(slot, tokens, start, draw(st.integers(0, size)), parents if tree else None))
    return rows


@given(rows=short_rows())
def test_the_smallest_shape_is_taken(rows: list[Row]) -> None:
    shape = Shapes(SLOTS, LENGTH, invariant=False).of(rows)
    assert shape is not None
    slots = max(row.slot for row in rows) + 1
    queries = max(len(row.tokens) for row in rows)
    keys = max(row.start + len(row.tokens) for row in rows)
    assert shape.slots == min(size for size in (1, 2, 4, 6) if size >= slots)
    assert shape.queries == min(size for size in (1, 3, 5, 9, 16) if size >= queries)
    assert shape.length == min(size for size in (256, 512) if size >= keys)


def test_the_default_target_has_eighty_shapes() -> None:
    shapes = Shapes(8, 2048, invariant=False)
    found = {
        shapes.of([Row(slot, [0] * size, end - size)])
        for slot in range(8)
        for size in range(1, TILE + 1)
        for end in range(16, 2049, 16)
    }
    assert None not in found
    assert len(found) == 80


def test_batch_invariant_shapes_have_a_tile_of_queries() -> None:
    shapes = Shapes(8, 192, invariant=True)
    assert shapes.of([Row(2, [0], 3)]) == Shape(4, TILE, 192)
    assert shapes.of([Row(2, [0, 1], 3, parents=[-1, -1])]) is None


def test_what_is_not_recorded() -> None:
    shapes = Shapes(1024, LENGTH, invariant=False)
    assert shapes.of([Row(0, [0] * (TILE + 1), 0), Row(1, [0], 0)]) is None
    assert shapes.of([Row(1023, [0], 0)]) == Shape(MOST_CELLS, 1, 256)
    assert shapes.of([Row(1023, [0, 1], 0)]) is None


@given(rows=short_rows())
def test_tokens_see_what_they_see_in_a_step_as_it_comes(rows: list[Row]) -> None:
    """Ids, positions, places and masks, against the packer's; the rest of the cells see key 0."""
    cache = KvCache(SLOTS, padded_length(LENGTH))
    grid = Grid(cache, torch.float32, CPU, invariant=False)
    shape = grid.shapes.of(rows)
    assert shape is not None
    wanted = grid.load(rows, shape)
    found = grid.packed(shape)
    (group,) = found.batch.groups
    masks = group.mask.view(shape.cells, -1)
    expected = Packer(cache, torch.float32, CPU, invariant=False).pack(rows)
    cells = [row.slot * shape.queries + i for row in rows for i in range(len(row.tokens))]
    assert found.ids[0, cells].equal(expected.ids[0])
    assert found.positions[0, cells].equal(expected.positions[0])
    assert found.batch.slots[cells].equal(expected.batch.slots)
    assert found.batch.places[cells].equal(expected.batch.places)
    assert wanted.tolist() == [cells[token] for token in expected.wanted.tolist()]
    for one in expected.batch.groups:
        asked = one.mask.view(-1, one.length)[one.places]
        shared = min(one.length, shape.length)
        own = masks[[cells[token] for token in one.tokens.tolist()]]
        assert own[:, :shared].equal(asked[:, :shared])
        assert (own[:, shared:] == -torch.inf).all()
    others = sorted(set(range(shape.cells)) - set(cells))
    assert (masks[others] == 0).sum(dim=1).tolist() == [1] * len(others)
    assert (masks[others, 0] == 0).all()


@given(rows=short_rows())
def test_no_two_cells_write_to_one_place_and_none_to_a_stranger(rows: list[Row]) -> None:
    shape = Shapes(SLOTS, LENGTH, invariant=False).of(rows)
    assert shape is not None
    places = layout(rows, shape, LENGTH)[2].reshape(shape.slots, shape.queries)
    assert all(len(set(slot)) == shape.queries for slot in places.tolist())
    real = {(row.slot, row.start + i) for row in rows for i in range(len(row.tokens))}
    written = {(slot, place) for slot in range(shape.slots) for place in places[slot].tolist()}
    assert {one for one in written if one[1] < LENGTH} == real
    assert max(place for _, place in written) < padded_length(LENGTH)


def test_slots_are_a_block_longer() -> None:
    assert padded_length(100) == 2 * BLOCK + BLOCK
    assert padded_length(LENGTH) == LENGTH + BLOCK


def test_sight() -> None:
    assert sight(Row(0, [1, 2, 3], 5)).tolist() == [0b1, 0b11, 0b111]
    assert sight(Row(0, [1, 2, 3], 5, parents=[-1, -1, 0])).tolist() == [0b1, 0b10, 0b101]


@pytest.mark.parametrize("seed", range(3))
def test_replays_compute_what_steps_as_they_come_do(tiny_model: Path, seed: int) -> None:
    runner, tape = make_replaying(tiny_model, max_length=LENGTH)
    plain = make_runner(tiny_model, max_length=LENGTH)
    for found, expected in zip(walk(runner, seed, 40), walk(plain, seed, 40), strict=True):
        np.testing.assert_allclose(found, expected, atol=CLOSE)
    assert 5 < tape.recordings < tape.replays < 45


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batch_invariant_replays_are_bitwise_the_same(tiny_model: Path, dtype: str) -> None:
    kind = {"dtype": dtype, "compiled": False, "batch_invariant": True, "max_length": LENGTH}
    runner, tape = make_replaying(tiny_model, **kind)
    assert runner.invariance_holds
    before = tape.replays
    for found, expected in zip(
        walk(runner, 5, 20), walk(make_runner(tiny_model, **kind), 5, 20), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    assert tape.replays > before


def test_each_shape_is_recorded_once(tiny_model: Path) -> None:
    runner, tape = make_replaying(tiny_model, max_length=LENGTH)
    assert (tape.recordings, tape.replays) == (1, 1)
    text = random_tokens(300, 1)
    found = chunked(runner, 0, text, [200, *[1] * 100])
    np.testing.assert_allclose(found, plain_logits(tiny_model, text), atol=CLOSE)
    assert (tape.recordings, tape.replays) == (2, 101)


def test_prefills_take_the_others_of_their_step_along(tiny_model: Path) -> None:
    runner, tape = make_replaying(tiny_model)
    runner.forward([Row(0, random_tokens(TILE + 1, 1), 0), Row(1, [5], 0)])
    assert tape.replays == 1


def test_a_full_slot_that_sits_out_keeps_its_last_position(tiny_model: Path) -> None:
    runner, tape = make_replaying(tiny_model, max_length=128)
    text = random_tokens(128, 2)
    runner.forward([Row(1, text, 0)])
    runner.forward([Row(0, [1, 2], 0), Row(2, [3], 0)])
    assert tape.replays == 2
    found = runner.forward([Row(1, text[-1:], 127)])[0]
    np.testing.assert_allclose(found, plain_logits(tiny_model, text)[-1:], atol=CLOSE)


def test_other_forwards_are_never_recorded(tmp_path: Path) -> None:
    config = Gemma2Config(**SIZES, sliding_window=256, attn_logit_softcapping=None)
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    runner, tape = make_replaying(tmp_path)
    assert runner.forward([Row(0, [5], 0)])[0].shape == (1, 320)
    assert tape.recordings == 0
    assert runner.cache_bytes == make_runner(tmp_path).cache_bytes


def test_windows_are_never_recorded(tmp_path: Path) -> None:
    MistralForCausalLM(MistralConfig(**SIZES, sliding_window=20)).save_pretrained(tmp_path)
    runner, tape = make_replaying(tmp_path)
    text = random_tokens(60, 2)
    found = chunked(runner, 0, text, (40, *[5] * 4))
    np.testing.assert_allclose(found, plain_logits(tmp_path, text), atol=CLOSE)
    assert tape.recordings == 0


def test_what_cannot_be_recorded_is_said_at_start(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = Grid._mask

    def waiting(self: Grid, shape: Shape, prefix: Tensor, seen: Tensor) -> Tensor:
        return mask(self, shape, prefix, seen) + float(prefix.max())

    monkeypatch.setattr(Grid, "_mask", waiting)
    with pytest.raises(ConfigError, match="STARSD_CUDA_GRAPHS"):
        make_replaying(tiny_model)


def test_cuda_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where steps are recorded: on CUDA, unless told otherwise."""
    monkeypatch.setattr(forward, "CudaGraphs", lambda device: f"graphs of {device}")

    def made(device: str, **changes: bool) -> object:
        return forward.make_graphs(settings("m", **changes), torch.device(device))

    assert made("cuda:1") == "graphs of cuda:1"
    assert made("cuda", cuda_graphs=False) is None
    assert made("cpu") is None
    assert made("mps") is None


class TestTape:
    """The stand-in is as strict as what it stands for."""

    memory = torch.tensor([1.0, 2.0])

    def record(self, step: Callable[[], Tensor]) -> Replay:
        with torch.inference_mode():
            return Tape().capture(step)

    def test_python_does_not_run_again(self) -> None:
        calls: list[int] = []
        memory = self.memory.clone()

        def step() -> Tensor:
            calls.append(1)
            return (memory.view(2, 1) * 2).sum()

        replay = self.record(step)
        memory.copy_(torch.tensor([3.0, 4.0]))
        with torch.inference_mode():
            assert replay().item() == 14
            assert replay() is replay()
        assert len(calls) == 2

    @pytest.mark.parametrize(
        "step",
        [
            lambda: TestTape.memory * TestTape.memory.max().item(),
            lambda: TestTape.memory[TestTape.memory > 1],
            lambda: TestTape.memory + torch.tensor([1.0, 1.0]),
            lambda: TestTape.memory.to("meta"),
        ],
        ids=["value", "shape", "host memory", "copy"],
    )
    def test_what_waits_is_refused(self, step: Callable[[], Tensor]) -> None:
        with pytest.raises(RuntimeError, match="not permitted"):
            self.record(step)
