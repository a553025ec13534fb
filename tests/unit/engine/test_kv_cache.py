from __future__ import annotations

import torch

from starsd.engine.kv_cache import KvCache, LayerCache


def _filled(slots: int = 3, length: int = 70) -> tuple[KvCache, LayerCache]:
    """Every position of slot 1 holds its own index."""
    cache = KvCache(slots, length)
    places = torch.arange(length)
    keys = places.float()[:, None, None].expand(length, 2, 4)
    layer = cache.write(0, keys, -keys, cache.rows(torch.full((length,), 1), places, 2))
    return cache, layer


def test_length_is_whole_blocks() -> None:
    cache, layer = _filled(length=70)
    assert cache.length == 128
    assert layer.keys.shape == layer.values.shape == (3, 2, 128, 4)
    assert cache.position_bytes == 2 * 2 * 4 * 4


def test_write_touches_only_its_places() -> None:
    cache, layer = _filled()
    cache.write(
        0,
        torch.full((2, 2, 4), 9.0),
        torch.full((2, 2, 4), 8.0),
        cache.rows(torch.tensor([1, 2]), torch.tensor([5, 0]), 2),
    )
    assert (layer.keys[1, :, 5] == 9).all()
    assert (layer.values[2, :, 0] == 8).all()
    assert layer.keys[1, 0, 4:7, 0].tolist() == [4, 9, 6]
    assert (layer.keys[0] == 0).all()
    assert (layer.keys[2, :, 1:] == 0).all()


def test_keys_and_values_may_differ_in_size() -> None:
    cache = KvCache(1, 64)
    one = torch.tensor([0])
    layer = cache.write(0, torch.ones(1, 2, 6), torch.ones(1, 2, 4), cache.rows(one, one, 2))
    assert layer.keys.shape[-1] == 6
    assert layer.values.shape[-1] == 4


def test_compact_moves_the_path_down() -> None:
    cache, layer = _filled()
    cache.compact(1, 10, [0, 2, 5])
    assert layer.keys[1, 0, 9:14, 0].tolist() == [9, 10, 12, 15, 13]
    assert layer.values[1, 1, 9:14, 3].tolist() == [-9, -10, -12, -15, -13]


def test_compact_of_a_chain_moves_nothing() -> None:
    cache, layer = _filled()
    before = layer.keys.clone()
    cache.compact(1, 10, [0, 1, 2])
    cache.compact(1, 10, [])
    assert torch.equal(layer.keys, before)


def test_clear() -> None:
    cache, layer = _filled()
    cache.clear(1)
    assert (layer.keys == 0).all()
    assert (layer.values == 0).all()
