"""Packs ragged rows into one forward: token arrays, and which queries see which keys.

All rows' tokens lie side by side in ``[1, T]``. For attention, queries are regrouped by slot:
rows of at most ``TILE`` tokens whose slots are neighbours share one call over a view of the cache;
longer rows (prefill) get calls of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from starsd.engine.interface import Row
from starsd.engine.kv_cache import BLOCK, KvCache, LayerCache

TILE = 16
"""Most tokens of a decode row; in batch-invariant mode also rows of every GEMM."""

_KEY_STEP = 16
_MAX_HOLE = 1
"""Idle slots between two decode rows that are cheaper to compute than another call."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """``size`` consecutive tokens of one row; ``offset`` is the first one's index in the pack."""

    row: Row
    first: int
    size: int
    offset: int

    @property
    def end(self) -> int:
        """Keys that its last token may see."""
        return self.row.start + self.first + self.size


@dataclass(frozen=True)
class Group:
    """One attention call: slots ``low:high``, ``queries`` per slot, the first ``length`` keys.

    ``gather [slots * queries]`` is the packed index of each query (0 where there is none);
    ``tokens`` and ``places`` (equal lengths) say which packed token's result lies at which query;
    ``mask [slots, queries, length]`` is 0 or -inf. A query that stands for nothing sees key 0.
    """

    low: int
    high: int
    queries: int
    length: int
    gather: Tensor
    tokens: Tensor
    places: Tensor
    mask: Tensor
    _folded: dict[int, Tensor] = field(default_factory=dict)

    def folded_mask(self, group: int) -> Tensor:
        """``[slots, 1, group * queries, length]``: query heads of one KV head side by side."""
        if group not in self._folded:
            slots, queries, length = self.mask.shape
            wide = self.mask[:, None, None].expand(slots, 1, group, queries, length)
            self._folded[group] = wide.reshape(slots, 1, group * queries, length)
        return self._folded[group]


@dataclass(frozen=True)
class Batch:
    """Everything the attention function needs; ``slots, places [n]`` say where keys go.

    ``aligned``: one group holds all tokens in the order of the pack, so nothing is regrouped.
    """

    cache: KvCache
    slots: Tensor
    places: Tensor
    groups: tuple[Group, ...]
    invariant: bool
    aligned: bool
    _rows: dict[int, Tensor] = field(default_factory=dict)

    def write(self, index: int, key: Tensor, value: Tensor) -> LayerCache:
        """Store ``key, value [T, kv_heads, d]`` in layer ``index``, padding left out."""
        kv_heads = key.shape[1]
        if kv_heads not in self._rows:
            self._rows[kv_heads] = self.cache.rows(self.slots, self.places, kv_heads)
        real = len(self.slots)
        return self.cache.write(index, key[:real], value[:real], self._rows[kv_heads])


@dataclass(frozen=True)
class Packed:
    """``ids, positions [1, T]``; ``wanted`` indexes the tokens whose logits are returned."""

    ids: Tensor
    positions: Tensor
    wanted: Tensor
    batch: Batch


class Packer:
    """Turns rows into a ``Packed``; holds what does not change between steps."""

    def __init__(
        self, cache: KvCache, dtype: torch.dtype, device: torch.device, *, invariant: bool
    ) -> None:
        self._cache = cache
        self._dtype = dtype
        self._device = device
        self._invariant = invariant

    def pack(self, rows: Sequence[Row]) -> Packed:
        offsets = np.cumsum([0, *(len(row.tokens) for row in rows)])
        total = int(offsets[-1])
        padded = -(-total // TILE) * TILE if self._invariant else total
        ids, positions = np.zeros((2, 1, padded), dtype=np.int64)
        slots, places = np.empty((2, total), dtype=np.int64)
        for row, offset in zip(rows, offsets.tolist(), strict=False):
            part = slice(offset, offset + len(row.tokens))
            ids[0, part] = row.tokens
            positions[0, part] = row.start + depths(row)
            slots[part] = row.slot
            places[part] = row.start + np.arange(len(row.tokens))
        calls = list(self._calls(rows, offsets.tolist()))
        groups = tuple(self._group(pieces) for pieces in calls)
        batch = Batch(
            self._cache,
            self._tensor(slots),
            self._tensor(places),
            groups,
            self._invariant,
            _aligned(calls, groups, padded),
        )
        wanted = self._tensor(_wanted(rows, offsets))
        return Packed(self._tensor(ids), self._tensor(positions), wanted, batch)

    def _tensor(self, values: Ints) -> Tensor:
        return torch.from_numpy(values).to(self._device)

    def _calls(self, rows: Sequence[Row], offsets: Sequence[int]) -> Iterator[list[Piece]]:
        whole = [
            Piece(row, 0, len(row.tokens), offset)
            for row, offset in zip(rows, offsets, strict=False)
        ]
        yield from _neighbours(piece for piece in whole if piece.size <= TILE)
        for piece in whole:
            if piece.size > TILE:
                yield from ([part] for part in self._split(piece))

    def _split(self, piece: Piece) -> Iterator[Piece]:
        """In batch-invariant mode a long row is attended tile by tile."""
        step = TILE if self._invariant else piece.size
        for first in range(0, piece.size, step):
            yield Piece(piece.row, first, min(step, piece.size - first), piece.offset + first)

    def _group(self, pieces: Sequence[Piece]) -> Group:
        low, high = pieces[0].row.slot, pieces[-1].row.slot + 1
        queries = TILE if self._invariant else max(piece.size for piece in pieces)
        step = BLOCK if self._invariant else _KEY_STEP
        length = -(-max(piece.end for piece in pieces) // step) * step
        gather = np.zeros((high - low, queries), dtype=np.int64)
        for piece in pieces:
            gather[piece.row.slot - low, : piece.size] = piece.offset + np.arange(piece.size)
        tokens, places = _result_places(pieces, low, queries)
        return Group(
            low=low,
            high=high,
            queries=queries,
            length=length,
            gather=self._tensor(gather.reshape(-1)),
            tokens=self._tensor(tokens),
            places=self._tensor(places),
            mask=self._mask(pieces, (high - low, queries, length)),
        )

    def _mask(self, pieces: Sequence[Piece], shape: tuple[int, int, int]) -> Tensor:
        low = pieces[0].row.slot
        last = np.zeros(shape[:2], dtype=np.int64)
        for piece in pieces:
            last[piece.row.slot - low, : piece.size] = _last_linear(piece)
        hidden = np.arange(shape[2]) > last[:, :, None]
        for piece in pieces:
            if piece.row.parents is not None:
                start, slot = piece.row.start, piece.row.slot - low
                seen = ancestors(piece.row.parents)[piece.first : piece.first + piece.size]
                hidden[slot, : piece.size, start : start + seen.shape[1]] = ~seen
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
        return torch.from_numpy(mask).to(self._device, self._dtype)


def depths(row: Row) -> Ints:
    """Each token's distance from ``row.start``: its index in a chain, its depth in a tree."""
    if row.parents is None:
        return np.arange(len(row.tokens))
    found: list[int] = []
    for parent in row.parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return np.array(found, dtype=np.int64)


def ancestors(parents: Sequence[int]) -> npt.NDArray[np.bool_]:
    """``[n, n]``: row i marks token i and the tokens on its path to the root."""
    seen = np.eye(len(parents), dtype=np.bool_)
    for index, parent in enumerate(parents):
        if parent >= 0:
            seen[index] |= seen[parent]
    return seen


def _last_linear(piece: Piece) -> Ints | int:
    """Last key each query sees before tree rules: itself in a chain, the prefix in a tree."""
    start = piece.row.start
    if piece.row.parents is not None:
        return start - 1
    return start + piece.first + np.arange(piece.size)


def _neighbours(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Runs of pieces whose slots follow each other with at most ``_MAX_HOLE`` idle between."""
    run: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.row.slot):
        if run and piece.row.slot - run[-1].row.slot > _MAX_HOLE + 1:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _aligned(calls: Sequence[Sequence[Piece]], groups: Sequence[Group], total: int) -> bool:
    if len(groups) > 1 or (groups[0].high - groups[0].low) * groups[0].queries != total:
        return False
    low, queries = groups[0].low, groups[0].queries
    return all(piece.offset == (piece.row.slot - low) * queries for piece in calls[0])


def _result_places(pieces: Sequence[Piece], low: int, queries: int) -> tuple[Ints, Ints]:
    tokens = [piece.offset + np.arange(piece.size) for piece in pieces]
    places = [(piece.row.slot - low) * queries + np.arange(piece.size) for piece in pieces]
    return np.concatenate(tokens), np.concatenate(places)


def _wanted(rows: Sequence[Row], offsets: Ints) -> Ints:
    ends = offsets[1:].tolist()
    parts = [np.arange(end - row.want, end) for row, end in zip(rows, ends, strict=True)]
    return np.concatenate(parts).astype(np.int64)
