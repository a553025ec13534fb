"""The hidden states that draft heads need, of committed positions, beside their keys and values.

They come from the forwards that serve anyway; none is ever computed for this. Until a hub is known
that needs them, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many

import numpy as np
import structlog

from services.target.sequence import Sequence
from starsd.engine.interface import KV_BLOCK, Runner
from starsd.engine.interface import Features as Rows
from starsd.engine.kv_budget import blocks_of
from starsd.errors import ConfigError
from starsd.protocol.features import pack_features
from starsd.protocol.pods import Needs

log = structlog.get_logger()


class Window:
    """The rows of the positions ``begin`` to ``end``, in blocks of ``KV_BLOCK`` positions.

    Windows with a common beginning share its whole blocks; nobody writes to these any more.
    """

    def __init__(self) -> None:
        self.begin = self.end = 0
        self._blocks: dict[int, Rows] = {}

    def write(self, start: int, rows: Rows) -> None:
        """Positions ``start`` on; none that lie beyond count any more, nor any before a gap."""
        if self.begin <= start <= self.end:
            self.cut(start)
        else:
            self.begin, self._blocks = start, {}
        self.end = start + len(rows)
        for index, first, last in _pieces(start, self.end):
            if index not in self._blocks:
                self._blocks[index] = np.empty((KV_BLOCK, rows.shape[1]), np.uint16)
            self._blocks[index][_within(index, first, last)] = rows[first - start : last - start]

    def read(self, first: int, last: int) -> Rows:
        """Of positions ``first`` to ``last``, all within the window."""
        pieces = [
            self._blocks[index][_within(index, *piece)] for index, *piece in _pieces(first, last)
        ]
        return np.concatenate(pieces)

    def cut(self, length: int) -> None:
        """Positions from ``length`` on are gone."""
        if length < self.end:
            self._end_at(length)

    def forget(self, before: int) -> None:
        """Positions ``before`` that one are gone."""
        self.begin = max(self.begin, before)
        for index in [i for i in self._blocks if i < self.begin // KV_BLOCK]:
            del self._blocks[index]

    def beginning(self, length: int) -> Window:
        """Another one, of positions before ``length``."""
        other = Window()
        other.begin, other._blocks = self.begin, self._blocks
        other._end_at(min(length, self.end))
        return other

    def _end_at(self, length: int) -> None:
        """The last block, if it goes on, becomes its own."""
        self.begin, self.end = min(self.begin, length), length
        self._blocks = {i: rows for i, rows in self._blocks.items() if i < blocks_of(length)}
        if length % KV_BLOCK and (last := self._blocks.get(length // KV_BLOCK)) is not None:
            self._blocks[length // KV_BLOCK] = last.copy()


def _pieces(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The blocks over which these positions lie: index, first and last position within."""
    for index in range(first // KV_BLOCK, blocks_of(last)):
        yield index, max(first, index * KV_BLOCK), min(last, (index + 1) * KV_BLOCK)


def _within(index: int, first: int, last: int) -> slice:
    return slice(first - index * KV_BLOCK, last - index * KV_BLOCK)


class Features:
    """What a runner's taps gave: of all positions where prefixes are kept for others (``whole``),
    else of the last ``context`` of each slot, which is what a hub gets to see."""

    def __init__(self, runner: Runner, context: int, *, whole: bool = False) -> None:
        self._context = context
        self._whole = whole
        self._runner = runner
        self._needs: Needs | None = None
        self._misfit: Needs | None = None
        self._windows: dict[int, Window] = {}

    def serve(self, needs: Needs, *, engaged: bool) -> str | None:
        """Keep what ``needs`` asks for from now on, or say why not. One kind is kept at a time:
        another may take its place only while no hub is ``engaged`` with it."""
        if _alike(needs, self._needs):
            return None
        if _alike(needs, self._misfit):
            return f"hidden_size: hub reads {needs.hidden_size}, which this model's is not"
        if self._needs is not None and engaged:
            return f"layers: hub reads {needs.layers}, another in use reads {self._needs.layers}"
        try:
            self._runner.tap(needs.layers)
        except ConfigError as error:
            return f"layers: {error.message}"
        self._needs = needs
        self._windows.clear()
        return None

    def of_forward(self, rows: int) -> Many[Rows | None]:
        """Of the runner's last forward of so many ``rows``; None for each where none are kept."""
        if self._needs is None:
            return [None] * rows
        found = self._runner.features()
        if found and found[0].shape[1] != self._needs.width:
            log.error("unfit for the hubs", width=found[0].shape[1], want=self._needs.width)
            self._misfit, self._needs = self._needs, None
            return [None] * rows
        return found

    def keep(self, slot: int, start: int, rows: Rows | None, end: int | None = None) -> None:
        """Positions of ``slot`` from ``start`` on, those before ``end``, are committed."""
        if rows is not None:
            window = self._windows.setdefault(slot, Window())
            window.write(start, rows if end is None else rows[: end - start])
            if not self._whole:
                window.forget(window.end - self._context)

    def copy(self, source: int, slot: int, length: int) -> None:
        """As ``Runner.copy``: what is still there of the first ``length`` positions."""
        window = self._windows.get(source)
        if window is not None and window.begin < length:
            self._windows[slot] = window.beginning(length)

    def cut(self, slot: int, length: int) -> None:
        """As ``Runner.release``: those from ``length`` on are gone."""
        window = self._windows.get(slot)
        if window is not None and window.begin < length:
            window.cut(length)
        else:
            self._windows.pop(slot, None)

    def ready(self, sequence: Sequence) -> bool:
        """Whether those of the position before its newest token are there."""
        window = self._windows.get(sequence.slot)
        return sequence.decoding and window is not None and window.end == sequence.cached

    def begin(self, sequence: Sequence) -> int:
        """The first position of a ``ready`` sequence that a hub gets to see."""
        window = self._windows[sequence.slot]
        return max(window.begin, window.end - self._context)

    def pack(self, sequence: Sequence, first: int, last: int) -> bytes:
        """Positions ``first`` to ``last``, for the wire."""
        return pack_features(self._windows[sequence.slot].read(first, last))


def _alike(one: Needs, other: Needs | None) -> bool:
    """Whether the same rows serve both."""
    return other is not None and (one.layers, one.hidden_size) == (other.layers, other.hidden_size)
