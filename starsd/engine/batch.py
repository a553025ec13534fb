"""Packs ragged rows into one forward: token arrays, and which queries see which keys.

All rows' tokens lie side by side in ``[1, T]``. For attention, queries are regrouped by slot:
rows of at most ``TILE`` tokens whose slots are neighbours share one call over a view of the cache;
longer rows (prefill) get calls of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from starsd.engine.cuda import to_device
from starsd.engine.interface import Row
from starsd.engine.kv_cache import BLOCK, KvCache, LayerCache
from starsd.engine.pieces import Flags, Piece, hidden_from, neighbours, paths_of, places_of
from starsd.engine.rows import Ints, depths, last_tokens

TILE = 16
"""Most tokens of a decode row; in batch-invariant mode also rows of every GEMM."""

_KEY_STEP = 16


@dataclass(frozen=True)
class Group:
    """One attention call: slots ``low:high``, ``queries`` per slot, the first ``length`` keys. With
    ``order [n, length]`` it is one slot, looked at in ``n`` ways: in each its keys in that order.

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
    order: Tensor | None = None
    sights: dict[int, Sight] = field(default_factory=dict)
    """By window, where a window hides anything."""
    _folded: dict[int, Tensor] = field(default_factory=dict)

    def folded_mask(self, group: int) -> Tensor:
        """``[slots, 1, group * queries, length]``: query heads of one KV head side by side."""
        if group not in self._folded:
            self._folded[group] = fold(self.mask, group)
        return self._folded[group]


@dataclass(frozen=True)
class Sight:
    """What a sliding window leaves of a group's keys: those from ``first`` on, and of them what
    ``mask [slots, queries, length - first]`` shows."""

    first: int
    mask: Tensor
    _folded: dict[int, Tensor] = field(default_factory=dict)

    def folded_mask(self, group: int) -> Tensor:
        """Like ``Group.folded_mask``."""
        if group not in self._folded:
            self._folded[group] = fold(self.mask, group)
        return self._folded[group]


def fold(mask: Tensor, group: int) -> Tensor:
    """``mask [slots, queries, length]``, once for each query head of a KV head."""
    slots, queries, length = mask.shape
    wide = mask[:, None, None].expand(slots, 1, group, queries, length)
    return wide.reshape(slots, 1, group * queries, length)


@dataclass(frozen=True)
class Batch:
    """Everything the attention function needs; ``slots, places [n]`` say where keys go.

    ``aligned``: one group holds all tokens in the order of the pack, so nothing is regrouped.
    ``windows``: of each layer (``support.layer_windows``); empty if none slides.
    """

    cache: KvCache
    slots: Tensor
    places: Tensor
    groups: tuple[Group, ...]
    invariant: bool
    aligned: bool
    windows: Sequence[int | None] = ()
    _rows: dict[int, Tensor] = field(default_factory=dict)

    def window(self, index: int) -> int | None:
        """Of layer ``index``."""
        return self.windows[index] if index < len(self.windows) else None

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
        self,
        cache: KvCache,
        dtype: torch.dtype,
        device: torch.device,
        *,
        invariant: bool,
        windows: Sequence[int | None] = (),
    ) -> None:
        self._cache = cache
        self._dtype = dtype
        self._device = device
        self._invariant = invariant
        self._windows = windows
        self._different = sorted({window for window in windows if window is not None})

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
            self._windows,
        )
        wanted = self._tensor(last_tokens(rows))
        return Packed(self._tensor(ids), self._tensor(positions), wanted, batch)

    def _tensor(self, values: Ints) -> Tensor:
        return to_device(values, self._device)

    def _calls(self, rows: Sequence[Row], offsets: Sequence[int]) -> Iterator[list[Piece]]:
        whole = [
            Piece(row, 0, len(row.tokens), offset)
            for row, offset in zip(rows, offsets, strict=False)
        ]
        alone = [piece for piece in whole if piece.size > TILE or self._branches(piece)]
        yield from neighbours(piece for piece in whole if piece not in alone)
        for piece in alone:
            yield from ([part] for part in self._split(piece))

    def _split(self, piece: Piece) -> Iterator[Piece]:
        """In batch-invariant mode a long row is attended tile by tile."""
        step = TILE if self._invariant else piece.size
        for first in range(0, piece.size, step):
            yield Piece(piece.row, first, min(step, piece.size - first), piece.offset + first)

    def _branches(self, piece: Piece) -> bool:
        """Sums that run over hidden keys between seen ones have other bits than a chain's."""
        return self._invariant and piece.row.parents is not None

    def _tree(self, piece: Piece) -> Group:
        """Each token with its keys in the order of its path, as in a chain."""
        order, last = paths_of(piece)
        size, length = order.shape
        gather, queries = np.zeros((size, TILE), dtype=np.int64), np.full((size, TILE), -1)
        own = np.arange(size)
        gather[:, 0], queries[:, 0] = piece.offset + own, last
        hidden: Flags = np.arange(length) > np.maximum(queries, 0)[:, :, None]
        keys = np.tile(np.arange(length), (size, 1))
        return Group(
            low=piece.row.slot,
            high=piece.row.slot + 1,
            queries=TILE,
            length=length,
            gather=self._tensor(gather.reshape(-1)),
            tokens=self._tensor(piece.offset + own),
            places=self._tensor(TILE * own),
            mask=self._mask(hidden),
            order=self._tensor(order),
            sights=self._sights((queries, keys), hidden, BLOCK),
        )

    def _group(self, pieces: Sequence[Piece]) -> Group:
        if self._branches(pieces[0]):
            return self._tree(pieces[0])
        low, high = pieces[0].row.slot, pieces[-1].row.slot + 1
        queries = TILE if self._invariant else max(piece.size for piece in pieces)
        step = BLOCK if self._invariant else _KEY_STEP
        length = -(-max(piece.end for piece in pieces) // step) * step
        gather = np.zeros((high - low, queries), dtype=np.int64)
        for piece in pieces:
            gather[piece.row.slot - low, : piece.size] = piece.offset + np.arange(piece.size)
        tokens, places = _result_places(pieces, low, queries)
        hidden = hidden_from(pieces, (high - low, queries, length))
        return Group(
            low=low,
            high=high,
            queries=queries,
            length=length,
            gather=self._tensor(gather.reshape(-1)),
            tokens=self._tensor(tokens),
            places=self._tensor(places),
            mask=self._mask(hidden),
            sights=self._sights(places_of(pieces, hidden.shape), hidden, step)
            if self._different
            else {},
        )

    def _sights(self, positions: tuple[Ints, Ints], hidden: Flags, step: int) -> dict[int, Sight]:
        """One for each window that is shorter than what some query would see."""
        queries, keys = positions
        found = {}
        for window in self._different:
            if queries.max() >= window:
                first = max(0, int(queries[queries >= 0].min()) - window + 1) // step * step
                narrow = hidden | (keys[:, None] <= queries[:, :, None] - window)
                narrow[queries < 0, first] = False
                found[window] = Sight(first, self._mask(narrow[:, :, first:]))
        return found

    def _mask(self, hidden: Flags) -> Tensor:
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
        return to_device(mask, self._device).to(self._dtype)


def _aligned(calls: Sequence[Sequence[Piece]], groups: Sequence[Group], total: int) -> bool:
    if (
        len(groups) > 1
        or groups[0].order is not None
        or (groups[0].high - groups[0].low) * groups[0].queries != total
    ):
        return False
    low, queries = groups[0].low, groups[0].queries
    return all(piece.offset == (piece.row.slot - low) * queries for piece in calls[0])


def _result_places(pieces: Sequence[Piece], low: int, queries: int) -> tuple[Ints, Ints]:
    tokens = [piece.offset + np.arange(piece.size) for piece in pieces]
    places = [(piece.row.slot - low) * queries + np.arange(piece.size) for piece in pieces]
    return np.concatenate(tokens), np.concatenate(places)
