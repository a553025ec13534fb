"""Rows of a forward: which are possible, how their tokens lie, and whose logits are whose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from starsd.engine.interface import Logits, Row
from starsd.errors import ConfigError, EngineError

Ints = npt.NDArray[np.int64]
Array = np.ndarray[Any, Any]
T = TypeVar("T")


def check_rows(rows: Sequence[Row], slots: int, max_length: int, vocab_size: int) -> None:
    """Refuse what would corrupt another sequence's state.

    Raises:
        EngineError: names the row and the bound it breaks.
    """
    if len({row.slot for row in rows}) < len(rows):
        raise EngineError(f"slots {[row.slot for row in rows]}: two rows share one")
    for row in rows:
        if (reason := _fault(row, slots, max_length, vocab_size)) is not None:
            raise EngineError(f"row of slot {row.slot} at {row.start}: {reason}")


def _fault(row: Row, slots: int, max_length: int, vocab_size: int) -> str | None:
    count = len(row.tokens)
    if not 0 <= row.slot < slots:
        return f"there are {slots} slots"
    if count == 0 or not 0 <= row.want <= count:
        return f"{row.want} of {count} tokens wanted"
    if row.start < 0 or row.start + count > max_length:
        return f"{count} tokens do not fit {max_length} positions"
    if min(row.tokens) < 0 or max(row.tokens) >= vocab_size:
        return f"a token outside the vocabulary of {vocab_size}"
    if row.parents is not None and not _is_tree(row.parents, count):
        return f"parents {list(row.parents)} are no tree of {count} tokens"
    return None


def _is_tree(parents: Sequence[int], count: int) -> bool:
    return len(parents) == count and all(
        -1 <= parent < index for index, parent in enumerate(parents)
    )


def check_taps(layers: Sequence[int], count: int) -> None:
    """Raises ConfigError: a model of ``count`` layers has no such hidden states."""
    if len(set(layers)) < len(layers) or any(not 0 <= layer <= count for layer in layers):
        raise ConfigError(
            f"hidden states {list(layers)} are asked of a model of {count} layers: want different "
            f"ones of 0 (the embedding) to {count}"
        )


def by_slot(rows: Sequence[Row]) -> list[int]:
    """Indices of ``rows`` in the order of their slots."""
    return sorted(range(len(rows)), key=lambda index: rows[index].slot)


def put_back(parts: Sequence[T], order: Sequence[int]) -> list[T]:
    """What was computed in that order, in the rows' own."""
    found = dict(zip(order, parts, strict=True))
    return [found[index] for index in range(len(parts))]


def split_tokens(features: Array, rows: Sequence[Row]) -> list[Array]:
    """What there is of all tokens, row by row, apart."""
    ends = np.cumsum([len(row.tokens) for row in rows]).tolist()
    return [features[end - len(row.tokens) : end] for end, row in zip(ends, rows, strict=True)]


def split(logits: Logits, rows: Sequence[Row]) -> list[Logits]:
    """Logits of all wanted tokens, row by row, apart."""
    parts: list[Logits] = []
    used = 0
    for row in rows:
        parts.append(logits[used : used + row.want])
        used += row.want
    return parts


def last_tokens(rows: Sequence[Row]) -> Ints:
    """Index of every wanted token among all rows' tokens, row by row."""
    found: list[int] = []
    end = 0
    for row in rows:
        end += len(row.tokens)
        found += range(end - row.want, end)
    return np.array(found, dtype=np.int64)


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
