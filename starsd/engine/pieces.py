"""Which keys each token of a forward sees, in numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from starsd.engine.interface import Row
from starsd.engine.kv_cache import BLOCK
from starsd.engine.rows import Ints, ancestors, depths

Flags = npt.NDArray[np.bool_]

_MAX_HOLE = 1
"""Idle slots between two decode rows that are cheaper to compute than another call."""


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


def hidden_from(pieces: Sequence[Piece], shape: tuple[int, int, int]) -> Flags:
    """``[slots, queries, length]``: the keys that no query may see, windows aside."""
    low = pieces[0].row.slot
    last = np.zeros(shape[:2], dtype=np.int64)
    for piece in pieces:
        last[piece.row.slot - low, : piece.size] = _last_linear(piece)
    hidden: Flags = np.arange(shape[2]) > last[:, :, None]
    for piece in pieces:
        if piece.row.parents is not None:
            start, slot = piece.row.start, piece.row.slot - low
            seen = ancestors(piece.row.parents)[piece.first : piece.first + piece.size]
            seen = seen[:, : shape[2] - start]  # a tile of a long row sees no further
            hidden[slot, : piece.size, start : start + seen.shape[1]] = ~seen
    return hidden


def paths_of(piece: Piece) -> tuple[Ints, Ints]:
    """``[size, length]``: the slot's places, where each token of a tree finds its path as if it
    were a chain; ``[size]``: the last that it sees."""
    row, tokens = piece.row, range(piece.first, piece.first + piece.size)
    last = row.start + depths(row)[piece.first : piece.first + piece.size]
    length = -(-(int(last.max()) + 1) // BLOCK) * BLOCK
    order, seen = np.tile(np.arange(length), (piece.size, 1)), ancestors(row.parents or ())
    for line, token in zip(order, tokens, strict=True):
        path = np.flatnonzero(seen[token])
        line[row.start : row.start + len(path)] = row.start + path
    return order, last


def places_of(pieces: Sequence[Piece], shape: Sequence[int]) -> tuple[Ints, Ints]:
    """Of queries ``[slots, queries]``, -1 where there is none, and of keys ``[slots, length]``:
    their places, but in a tree their depths."""
    low = pieces[0].row.slot
    queries = np.full(shape[:2], -1)
    keys = np.tile(np.arange(shape[2]), (shape[0], 1))
    for piece in pieces:
        slot, start = piece.row.slot - low, piece.row.start
        found = start + depths(piece.row)
        queries[slot, : piece.size] = found[piece.first : piece.first + piece.size]
        if piece.row.parents is not None:
            known = found[: shape[2] - start]
            keys[slot, start : start + len(known)] = known
    return queries, keys


def _last_linear(piece: Piece) -> Ints | int:
    """Last key each query sees before tree rules: itself in a chain, the prefix in a tree."""
    start = piece.row.start
    if piece.row.parents is not None:
        return start - 1
    return start + piece.first + np.arange(piece.size)


def neighbours(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Runs of pieces whose slots follow each other with at most ``_MAX_HOLE`` idle between."""
    run: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.row.slot):
        if run and piece.row.slot - run[-1].row.slot > _MAX_HOLE + 1:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run
