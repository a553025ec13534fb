"""Rows of a forward: which are possible, and whose logits are whose."""

from __future__ import annotations

from collections.abc import Sequence

from starsd.engine.interface import Logits, Row
from starsd.errors import EngineError


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


def split(logits: Logits, rows: Sequence[Row]) -> list[Logits]:
    """Logits of all wanted tokens, row by row, apart."""
    parts: list[Logits] = []
    used = 0
    for row in rows:
        parts.append(logits[used : used + row.want])
        used += row.want
    return parts
