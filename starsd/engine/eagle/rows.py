"""Rows of a draft head, as the engine's packers know rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starsd.engine.interface import HeadOutput, HeadRow, Logits, Row, States
from starsd.engine.rows import check_rows, split
from starsd.errors import EngineError


def plain_rows(
    rows: Sequence[HeadRow], slots: int, max_length: int, vocab_size: int, hidden_size: int
) -> list[Row]:
    """The rows without their states.

    Raises:
        EngineError: a row that would corrupt another sequence's state, or has the wrong states.
    """
    plain = [Row(row.slot, row.tokens, row.start, row.want, row.parents) for row in rows]
    check_rows(plain, slots, max_length, vocab_size)
    for row in rows:
        wanted = (len(row.tokens), hidden_size)
        if row.states.shape != wanted:
            raise EngineError(
                f"row of slot {row.slot} at {row.start}: states {row.states.shape}, want {wanted}"
            )
    return plain


def states_of(rows: Sequence[HeadRow]) -> States:
    """``[tokens, hidden]``, row by row."""
    return np.concatenate([row.states for row in rows])


def outputs_of(logits: Logits, states: States, rows: Sequence[Row]) -> list[HeadOutput]:
    """Those of all wanted tokens, row by row, apart."""
    parts = zip(split(logits, rows), split(states, rows), strict=True)
    return [HeadOutput(*part) for part in parts]
