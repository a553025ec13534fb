from __future__ import annotations

import numpy as np
import pytest
import torch

from starsd.engine.native.weights import GROUP, LANES, Int4, Int8, brain_tiles


def weights(outputs: int, inputs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(outputs, inputs)).astype(np.float32)


def test_no_int8_weight_is_off_by_more_than_half_a_step() -> None:
    weight = weights(8, 96)
    step = np.abs(weight).max(1, keepdims=True) / 127
    assert (np.abs(Int8.of(weight).dense() - weight) <= step * 0.5001).all()


def test_no_int4_weight_is_off_by_more_than_half_a_step() -> None:
    weight = weights(8, 96)
    groups = weight.reshape(8, 3, GROUP)
    span = groups.max(2) - groups.min(2)
    error = np.abs(Int4.of(weight).dense() - weight).reshape(groups.shape)
    # and half a unit in the last place of float16 scales and minima
    assert (error <= (span / 15 / 2 + (span + np.abs(groups).max(2)) * 2**-11)[..., None]).all()


@pytest.mark.parametrize("kind", [Int4, Int8])
def test_what_was_quantised_comes_back_as_it_was(kind: type[Int4] | type[Int8]) -> None:
    """So nothing is lost of a GGUF file's Q4_1 blocks."""
    once = kind.of(weights(32, 128))
    np.testing.assert_array_equal(kind.of(once.dense()).dense(), once.dense())


@pytest.mark.parametrize("kind", [Int4, Int8])
def test_weights_without_spread(kind: type[Int4] | type[Int8]) -> None:
    flat = np.zeros((2, 2 * GROUP), dtype=np.float32)
    flat[1] = 0.5
    np.testing.assert_allclose(kind.of(flat).dense(), flat, atol=1e-6)


def test_int8_tiles_hold_every_integer_once() -> None:
    """[quad][output][4], each plus 128; inputs fill up to 64, outputs to 16."""
    matrix = Int8.of(weights(20, 96))
    packed = matrix.tiles()
    assert packed.shape == (2, LANES * 128)
    assert packed.flags.c_contiguous
    quads = packed.reshape(2, 32, LANES, 4).astype(int) - 128
    for output, place in [(0, 0), (3, 33), (19, 95), (16, 62)]:
        column, lane = divmod(output, LANES)
        assert quads[column, place // 4, lane, place % 4] == matrix.q[output, place]
    assert (quads[1, :, 4:] == 0).all()
    assert (quads[:, 24:] == 0).all()


def test_int4_tiles_hold_every_integer_once() -> None:
    """Scales and minima, then [quad][output][4]."""
    matrix = Int4.of(weights(20, 64))
    packed = matrix.tiles()
    assert packed.shape == (2, 2, 64 + 256)
    assert packed.flags.c_contiguous
    for output, group, place in [(0, 0, 0), (3, 1, 30), (19, 1, 17), (16, 0, 15)]:
        column, lane = divmod(output, LANES)
        tile = packed[column, group]
        scale, least = tile[:64].view(np.float16).reshape(2, LANES)[:, lane]
        quad, byte = divmod(place, 4)
        both = tile[64:].reshape(4, LANES, 4)[quad % 4, lane, byte]
        assert (both >> 4 if quad >= 4 else both & 15, scale, least) == (
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
