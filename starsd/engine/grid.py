"""Decode and verify steps in few fixed shapes, so that each shape is recorded once.

A step of fixed shape is a grid of cells: ``queries`` of every slot from the first to ``slots``,
of which rows fill some. All that differs between two steps of a shape lies in one small array on
the device; masks are made of it there. Cells that stand for nothing compute token 0, see key 0 of
their slot, and write to places that no cell sees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from starsd.engine.batch import TILE, Batch, Group, Packed
from starsd.engine.cuda import Graphs, Replay, to_device
from starsd.engine.decoder import Decoder, Outcome
from starsd.engine.interface import Row
from starsd.engine.kv_cache import BLOCK, KvCache
from starsd.engine.rows import Ints, ancestors, depths

QUERIES = (1, 3, 5, 9, TILE)
"""Tokens per row: the last sampled one, alone or with proposals of up to 2, 4, 8 and 15."""

MOST_CELLS = 1024
"""A larger step is bound by arithmetic; launching it costs little in comparison."""

_FEWEST_KEYS = 256
_NEVER = 63
"""A bit that no ``sight`` has."""

_FIELDS = ("ids", "positions", "places", "prefix", "seen", "wanted")


@dataclass(frozen=True)
class Shape:
    """``slots * queries`` cells, each over the first ``length`` keys of its slot."""

    slots: int
    queries: int
    length: int

    @property
    def cells(self) -> int:
        return self.slots * self.queries


class Shapes:
    """The shapes of a runner: doubling numbers of slots and keys, ``QUERIES``."""

    def __init__(self, slots: int, length: int, *, invariant: bool) -> None:
        """``length``: keys of a whole slot."""
        self._slots = _doubling(1, slots)
        self._queries = (TILE,) if invariant else QUERIES
        self._trees = not invariant
        self._lengths = _doubling(_FEWEST_KEYS, length)

    def of(self, rows: Sequence[Row]) -> Shape | None:
        """The smallest that holds ``rows``; None: one is a prefill, they are too many, or one is a
        tree whose sums must run as a chain's."""
        longest = max(len(row.tokens) for row in rows)
        if longest > TILE or (not self._trees and any(row.parents for row in rows)):
            return None
        shape = Shape(
            _fit(self._slots, max(row.slot for row in rows) + 1),
            _fit(self._queries, longest),
            _fit(self._lengths, max(row.start + len(row.tokens) for row in rows)),
        )
        return shape if shape.cells <= MOST_CELLS else None


class Grid:
    """The memory that steps of fixed shape read their rows from."""

    def __init__(
        self, cache: KvCache, dtype: torch.dtype, device: torch.device, *, invariant: bool
    ) -> None:
        """``cache`` is ``padded_length`` long."""
        self._cache = cache
        self._dtype = dtype
        self._device = device
        self._invariant = invariant
        self._spare = cache.length - BLOCK
        self.shapes = Shapes(cache.slots, self._spare, invariant=invariant)
        self._memory = torch.zeros(len(_FIELDS) * MOST_CELLS, dtype=torch.int64, device=device)
        self._numbers = torch.arange(max(MOST_CELLS, cache.length), device=device)

    def load(self, rows: Sequence[Row], shape: Shape) -> Tensor:
        """Put ``rows`` in place; the cells whose logits they want."""
        fields = layout(rows, shape, self._spare)
        self._fields(shape).copy_(to_device(fields, self._device))
        return self._fields(shape)[-1, : sum(row.want for row in rows)]

    def cells(self, rows: Sequence[Row], shape: Shape) -> Tensor:
        """Those of all tokens, row by row."""
        parts = [row.slot * shape.queries + np.arange(len(row.tokens)) for row in rows]
        return to_device(np.concatenate(parts), self._device)

    def packed(self, shape: Shape) -> Packed:
        """The step as tensor operations on what was loaded. Made anew for every recording: what a
        batch remembers must come from the same one."""
        ids, positions, places, prefix, seen, wanted = self._fields(shape)
        cells = self._numbers[: shape.cells]
        mask = self._mask(shape, prefix, seen)
        group = Group(0, shape.slots, shape.queries, shape.length, cells, cells, cells, mask)
        slots = cells // shape.queries
        batch = Batch(self._cache, slots, places, (group,), self._invariant, aligned=True)
        return Packed(ids[None], positions[None], wanted, batch)

    def _fields(self, shape: Shape) -> Tensor:
        return self._memory[: len(_FIELDS) * shape.cells].view(len(_FIELDS), shape.cells)

    def _mask(self, shape: Shape, prefix: Tensor, seen: Tensor) -> Tensor:
        """A query sees the keys before its row's first, and those of its row that are ``seen``."""
        distance = self._numbers[: shape.length] - prefix[:, None]
        own = (seen[:, None] >> distance.clamp(0, _NEVER)) & 1
        hidden = (distance >= 0) & (own == 0)
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(hidden, -torch.inf).view(shape.slots, shape.queries, shape.length)


class Replays:
    """A decoder's steps of fixed shape, each recorded when it is first needed."""

    def __init__(self, decoder: Decoder, graphs: Graphs, grid: Grid) -> None:
        self._decoder = decoder
        self._graphs = graphs
        self._grid = grid
        self._recorded: dict[tuple[Shape, tuple[int, ...]], Replay] = {}

    def outcome(self, rows: Sequence[Row]) -> Outcome | None:
        """None: no shape holds ``rows``."""
        shape = self._grid.shapes.of(rows)
        if shape is None:
            return None
        wanted = self._grid.load(rows, shape)
        recorded = shape, self._decoder.taps
        if recorded not in self._recorded:
            self._recorded[recorded] = self._graphs.capture(
                lambda: self._decoder.states(self._grid.packed(shape))
            )
        states = self._recorded[recorded]()
        features = self._decoder.features(states)
        if self._decoder.taps:
            features = features.index_select(0, self._grid.cells(rows, shape))
        return Outcome(self._decoder.head(states, wanted), features)


def padded_length(max_length: int) -> int:
    """Positions that a slot needs: whole blocks, and one more for what stands for nothing."""
    return -(-max_length // BLOCK) * BLOCK + BLOCK


def layout(rows: Sequence[Row], shape: Shape, spare: int) -> Ints:
    """``[fields, cells]``: what ``Grid`` holds of ``rows``; ``spare`` is the first unused place."""
    fields = np.zeros((len(_FIELDS), shape.cells), dtype=np.int64)
    ids, positions, places, prefix, seen, wanted = fields
    places[:] = spare + np.arange(shape.cells) % shape.queries
    prefix[:] = 1
    used = 0
    for row in rows:
        count, first = len(row.tokens), row.slot * shape.queries
        own = slice(first, first + count)
        ids[own] = row.tokens
        positions[own] = row.start + depths(row)
        places[own] = row.start + np.arange(count)
        prefix[own] = row.start
        seen[own] = sight(row)
        wanted[used : used + row.want] = np.arange(first + count - row.want, first + count)
        used += row.want
    return fields


def sight(row: Row) -> Ints:
    """Per token of a short row: bit i says that it sees token i of the row."""
    count = len(row.tokens)
    chain = np.tri(count, dtype=np.bool_)
    seen = chain if row.parents is None else ancestors(row.parents)
    bits: Ints = seen @ (1 << np.arange(count))
    return bits


def _doubling(least: int, most: int) -> tuple[int, ...]:
    sizes = [least]
    while sizes[-1] < most:
        sizes.append(sizes[-1] * 2)
    return (*sizes[:-1], most)


def _fit(sizes: Sequence[int], wanted: int) -> int:
    return sizes[bisect_left(sizes, wanted)]
