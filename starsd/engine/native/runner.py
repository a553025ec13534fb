"""``starsd.engine.interface.Runner`` over the native decoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starsd.engine.interface import Logits, Row
from starsd.engine.native.decoder import MAX_TREE, NativeDecoder
from starsd.engine.native.weights import LANES
from starsd.engine.rows import check_rows, split
from starsd.errors import EngineError


class NativeRunner:
    """Rows never depend on their neighbours here: batch-invariant by construction."""

    batch_invariant = True
    invariance_holds: bool | None = None

    def __init__(
        self,
        decoder: NativeDecoder,
        *,
        slots: int,
        max_length: int,
        revision: str,
        fingerprint: str,
    ) -> None:
        self._decoder = decoder
        self.slots = slots
        self.max_length = max_length
        self.revision = revision
        self.fingerprint = fingerprint
        self.vocab_size = decoder.vocab_size

    @property
    def cache_bytes(self) -> int:
        return self._decoder.keys.nbytes + self._decoder.values.nbytes

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """See ``Runner.forward``.

        Raises:
            EngineError: a row that does not fit its slot or the vocabulary, or no memory.
        """
        if not rows:
            return []
        check_rows(rows, self.slots, self.max_length, self.vocab_size)
        for row in rows:
            if row.parents is not None and len(row.tokens) > MAX_TREE:
                raise EngineError(f"a tree of {len(row.tokens)} tokens; the limit is {MAX_TREE}")
        return split(self._decoder.forward(rows), rows)

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """After a tree row at ``start``: keep the accepted ``path`` (indices into its tokens, in
        order), so that it lies at ``start, start + 1, ...`` like a chain."""
        source, target = start + np.asarray(path, dtype=int), start + np.arange(len(path))
        keys, values = self._decoder.keys[:, slot], self._decoder.values[:, slot]
        block, lane = np.divmod(source, LANES)
        new_block, new_lane = np.divmod(target, LANES)
        keys[:, :, new_block, :, new_lane] = keys[:, :, block, :, lane]
        values[:, :, new_block, new_lane] = values[:, :, block, lane]
