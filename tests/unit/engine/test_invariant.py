"""Bitwise, in float32 and bfloat16: neighbours, chunks and slots leave no trace in a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from starsd.engine.interface import Row
from starsd.engine.invariant import ScoreForm, TiledLinear, blockwise_attention, make_linears_tiled
from starsd.engine.rows import ancestors
from starsd.engine.runner import TorchRunner
from tests.unit.engine.helpers import (
    chunked,
    make_replaying,
    make_runner,
    plain_logits,
    random_tokens,
)

TEXT = random_tokens(150, 1)


@pytest.fixture(scope="module", params=["float32", "bfloat16", "replayed"])
def runner(request: pytest.FixtureRequest, tiny_model: Path) -> TorchRunner:
    if request.param == "replayed":
        return make_replaying(tiny_model, batch_invariant=True)[0]
    return make_runner(tiny_model, dtype=request.param, batch_invariant=True)


@pytest.fixture(scope="module")
def alone(runner: TorchRunner) -> np.ndarray:
    return runner.forward([Row(0, TEXT, 0, want=150)])[0].copy()


@pytest.mark.parametrize("sizes", [[1] * 150, [16] * 9 + [6], [100, 5, 45], [63, 64, 23], [7, 143]])
def test_chunks(runner: TorchRunner, alone: np.ndarray, sizes: list[int]) -> None:
    np.testing.assert_array_equal(chunked(runner, 4, TEXT, sizes), alone)


@pytest.mark.parametrize("seed", range(6))
def test_neighbours(runner: TorchRunner, alone: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slot, start = int(rng.integers(0, 6)), 0
    while start < len(TEXT):
        size = int(rng.choice([1, 5, 9, 30]))
        own = Row(slot, TEXT[start : start + size], start)
        own = Row(slot, own.tokens, start, want=len(own.tokens))
        rows = [
            _noise_row(other, rng) for other in range(6) if other != slot and rng.random() < 0.6
        ]
        place = int(rng.integers(0, len(rows) + 1))
        rows.insert(place, own)
        found = runner.forward(rows)[place]
        np.testing.assert_array_equal(found, alone[start : start + own.want])
        start += own.want


def _noise_row(slot: int, rng: np.random.Generator) -> Row:
    size = int(rng.choice([1, 4, 16, 50]))
    start = int(rng.integers(0, 200))
    return Row(slot, rng.integers(0, 320, size).tolist(), start, want=int(rng.integers(0, 2)))


def test_rollback(runner: TorchRunner, alone: np.ndarray) -> None:
    runner.forward([Row(2, TEXT[:80], 0)])
    runner.forward([Row(2, random_tokens(90, 5), 80)])
    found = runner.forward([Row(2, TEXT[80:90], 80, want=10)])[0]
    np.testing.assert_array_equal(found, alone[80:90])


def test_close_to_plain_forward(tiny_model: Path) -> None:
    runner = make_runner(tiny_model, batch_invariant=True)
    found = runner.forward([Row(0, TEXT, 0, want=150)])[0]
    np.testing.assert_allclose(found, plain_logits(tiny_model, TEXT), atol=1e-4)


def test_tree_close_to_its_chain(tiny_model: Path) -> None:
    runner = make_runner(tiny_model, batch_invariant=True)
    tree, chain = runner.forward(
        [
            Row(0, [11, 12, 13, 14], 0, want=4, parents=[-1, -1, 0, 2]),
            Row(1, [11, 13, 14], 0, want=3),
        ]
    )
    np.testing.assert_allclose(tree[[0, 2, 3]], chain, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 16, 17, 40])
def test_tiled_linear_multiplies_sixteen_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(24, 40), nn.Identity())
    inputs = torch.randn(2, rows, 24)
    expected = model(inputs)
    make_linears_tiled(model)
    assert type(model[0]) is TiledLinear
    shapes = []
    plain = functional.linear

    def spy(tile: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        shapes.append(len(tile))
        return plain(tile, *rest)

    monkeypatch.setattr(functional, "linear", spy)
    found = model(inputs)
    torch.testing.assert_close(found, expected)
    assert set(shapes) <= {16}
    assert len(shapes) == -(-2 * rows // 16)


def test_masked_blocks_change_no_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (
        torch.randn(2, 3, count, 16, generator=generator) for count in (32, 256, 256)
    )
    mask = torch.zeros(2, 1, 32, 256)
    mask[..., 50:] = -torch.inf
    form = ScoreForm(0.25)
    long = blockwise_attention(query, keys, values, mask, form)
    short = blockwise_attention(query, keys[:, :, :64], values[:, :, :64], mask[..., :64], form)
    assert torch.equal(long, short)
    exact = functional.scaled_dot_product_attention(query, keys, values, mask, scale=0.25)
    torch.testing.assert_close(long, exact)


@pytest.mark.parametrize("start", [0, 21, 60])
def test_tree_is_bitwise_its_chains(runner: TorchRunner, start: int) -> None:
    """And so is what is left of it, wherever in a block of keys its branches lie."""
    rng = np.random.default_rng(start)
    prefix = random_tokens(start, 7)
    tokens = random_tokens(16, 8)
    parents = [-1, *(int(rng.integers(0, index)) for index in range(1, 16))]
    if prefix:
        runner.forward([Row(0, prefix, 0), Row(4, prefix, 0)])
    rows = [Row(0, tokens, start, want=16, parents=parents), Row(1, random_tokens(9, 9), 0)]
    tree = runner.forward(rows)[0].copy()
    for node in range(16):
        path = np.flatnonzero(ancestors(parents)[node]).tolist()
        chain = [tokens[index] for index in path]
        found = runner.forward([Row(4, chain, start, want=len(chain))])[0]
        np.testing.assert_array_equal(tree[path], found)
    runner.compact(0, start, path)
    end = start + len(path)
    moved, other = runner.forward([Row(0, [77], end), Row(4, [77], end)])
    np.testing.assert_array_equal(moved, other)
