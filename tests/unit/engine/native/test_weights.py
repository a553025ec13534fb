from __future__ import annotations

import numpy as np
import pytest
import torch

from starsd.engine.native.weights import GROUP, LANES, brain_tiles, quantise, tiles


def weights(outputs: int, inputs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(outputs, inputs)).astype(np.float32)


@pytest.mark.parametrize(("bits", "steps"), [(4, 15), (8, 254)])
def test_no_weight_is_off_by_more_than_half_a_step(bits: int, steps: int) -> None:
    weight = weights(8, 96)
    groups = weight.reshape(8, 3, GROUP)
    span = groups.max(2) - groups.min(2) if bits == 4 else 2 * np.abs(groups).max(2)
    error = np.abs(quantise(weight, bits).dense() - weight).reshape(groups.shape)
    # float16 scales: half a unit in their last place, over all steps
    assert (error <= (span / steps / 2 + span * 2**-11)[..., None]).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_come_back_as_they_were(bits: int) -> None:
    """Quantising what a GGUF file held changes nothing."""
    once = quantise(weights(32, 128), bits)
    again = quantise(once.dense(), bits)
    np.testing.assert_array_equal(again.dense(), once.dense())


@pytest.mark.parametrize("bits", [4, 8])
def test_groups_without_spread(bits: int) -> None:
    flat = np.zeros((1, 2 * GROUP), dtype=np.float32)
    flat[0, GROUP:] = 0.5
    np.testing.assert_allclose(quantise(flat, bits).dense(), flat, atol=0.5 * 2**-8)


@pytest.mark.parametrize("bits", [4, 8])
def test_tiles_hold_every_integer_once(bits: int) -> None:
    """Tile, then scales and minima, then [quad][output][4]."""
    matrix = quantise(weights(20, 64), bits)
    packed = tiles(matrix)
    assert packed.shape == (2, 2, 64 + 512 * bits // 8)
    assert packed.flags.c_contiguous
    for output, group, place in [(0, 0, 0), (3, 1, 30), (19, 1, 17), (16, 0, 15)]:
        column, lane = divmod(output, LANES)
        tile = packed[column, group]
        scale, least = tile[:64].view(np.float16).reshape(2, LANES)[:, lane]
        quad, byte = divmod(place, 4)
        bytes_ = tile[64:].reshape(-1, LANES, 4)
        found = bytes_[quad % len(bytes_), lane, byte]
        if bits == 4:
            found = found >> 4 if quad >= 4 else found & 15
        assert (found, scale, least) == (
            matrix.q[output, group, place],
            matrix.scale[output, group],
            matrix.least[output, group],
        )


def test_brain_tiles_round_like_torch() -> None:
    weight = weights(20, 64)
    expected = torch.from_numpy(weight).bfloat16().float().numpy()
    halves = brain_tiles(weight).view(np.uint16).reshape(2, 2, GROUP // 2, LANES, 2)
    found = (halves.astype(np.uint32) << 16).view(np.float32)
    for output, place in [(0, 0), (3, 33), (19, 63), (16, 31)]:
        column, lane = divmod(output, LANES)
        group, inside = divmod(place, GROUP)
        assert found[column, group, inside // 2, lane, inside % 2] == expected[output, place]
    assert (found[1, :, :, 4:] == 0).all()  # the outputs that fill the tile
