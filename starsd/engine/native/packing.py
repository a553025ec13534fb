"""Packs a model's weights into one file, a few rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from starsd.engine.native.architecture import Architecture
from starsd.engine.native.plan import EMBEDDING, HEAD, Part, Product, Sizes, plan
from starsd.engine.native.source import Source
from starsd.engine.native.tensors import Floats, header_of
from starsd.engine.native.weights import LANES, pack
from starsd.errors import ConfigError

_BLOCK = 1 << 22
"""Most weights in hand at once: 16 MB in float32."""


def pack_model(path: Path, of: Architecture, bits: int, source: Source) -> None:
    """Write the weights of ``source`` to ``path``.

    Raises:
        ConfigError: weights that are not there, or of another shape.
        OSError: no room.
    """
    parts = plan(of, bits, tied=_tied(of, source))
    if found := misfits(parts, source):
        raise ConfigError(f"not the weights that config.json describes: {', '.join(found[:5])}")
    sizes: Sizes = {name: size for part in parts for name, size in part.sizes().items()}
    with path.open("wb") as file:
        file.write(header_of(sizes))
        for part in parts:
            _write(file, part, source)
        file.flush()
        os.fsync(file.fileno())


def fits(of: Architecture, source: Source) -> bool:
    """Whether ``source`` has every weight, as ``of`` describes them."""
    return not misfits(plan(of, 16, tied=of.tie_word_embeddings), source)


def misfits(parts: Sequence[Part], source: Source) -> list[str]:
    """Names of weights that are missing or have another shape."""
    wanted = {name: shape for part in parts for name, shape in part.shapes().items()}
    return [name for name, shape in wanted.items() if source.shape(name) != shape]


def _tied(of: Architecture, source: Source) -> bool:
    """As transformers sees it: a head of its own counts if it differs."""
    if not of.tie_word_embeddings or source.shape(f"{HEAD}.weight") is None:
        return of.tie_word_embeddings
    pairs = zip(*(_blocks(source, f"{name}.weight") for name in (HEAD, EMBEDDING)), strict=False)
    return all(np.array_equal(one, other) for one, other in pairs)


def _write(file: BinaryIO, part: Part, source: Source) -> None:
    if not isinstance(part, Product):
        file.write(source.rows(f"{part.part}.weight", 0, part.width).data)
        return
    scales = []
    for weight in (one for name in part.parts for one in _blocks(source, f"{name}.weight")):
        tiles, scale = pack(weight, part.bits)
        file.write(tiles.data)
        scales += [] if scale is None else [scale]
    if scales:
        _write_per_output(file, part, scales)
    if part.bias:
        each = zip(part.parts, part.outputs, strict=True)
        _write_per_output(file, part, [source.rows(f"{name}.bias", 0, n) for name, n in each])


def _write_per_output(file: BinaryIO, of: Product, parts: Sequence[Floats]) -> None:
    whole = np.concatenate(parts)
    file.write(np.pad(whole, (0, of.padded - len(whole))).data)


def _blocks(source: Source, name: str) -> Iterator[Floats]:
    """A matrix in whole tiles, but for the last."""
    outputs, inputs = source.shape(name) or (0, 1)
    step = max(1, _BLOCK // inputs // LANES) * LANES
    for first in range(0, outputs, step):
        yield source.rows(name, first, min(first + step, outputs))
