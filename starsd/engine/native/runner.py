"""``starsd.engine.interface.Runner`` over the native decoder."""

from __future__ import annotations

from collections.abc import Sequence

from starsd.engine.interface import KV_BLOCK, Features, Logits, Row, SlotState
from starsd.engine.kv_budget import plan_kv
from starsd.engine.native.abi import PARTS
from starsd.engine.native.decoder import NativeDecoder, check_trees
from starsd.engine.rows import check_rows, split, split_tokens


class NativeRunner:
    """Rows never depend on their neighbours here: batch-invariant by construction."""

    state = SlotState.ROLLS_BACK
    batch_invariant = True
    invariance_holds: bool | None = None

    def __init__(
        self,
        decoder: NativeDecoder,
        *,
        slots: int,
        max_length: int,
        kv_memory: int,
        revision: str,
        fingerprint: str,
    ) -> None:
        """Raises ConfigError: ``kv_memory`` bytes do not hold one sequence of ``max_length``."""
        self._decoder = decoder
        self._cache = decoder.cache
        plan = plan_kv(kv_memory, self._cache.position_bytes, slots, max_length, lazily=True)
        self.kv_blocks = plan.blocks
        self.slots = slots
        self.max_length = max_length
        self.revision = revision
        self.fingerprint = fingerprint
        self.vocab_size = decoder.vocab_size
        self._rows: Sequence[Row] = ()

    @property
    def cache_bytes(self) -> int:
        """At most."""
        return self.kv_blocks * KV_BLOCK * self._cache.position_bytes

    def parts(self) -> dict[str, float]:
        """Seconds that all forwards spent on ``PARTS``."""
        return dict(zip(PARTS, (self._decoder.spent / 1e9).tolist(), strict=True))

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """See ``Runner.forward``.

        Raises:
            EngineError: a row that does not fit its slot or the vocabulary, or no memory.
        """
        self._rows = rows
        if not rows:
            return []
        check_rows(rows, self.slots, self.max_length, self.vocab_size)
        check_trees(rows)
        return split(self._decoder.forward(rows), rows)

    def tap(self, layers: Sequence[int]) -> None:
        """See ``Runner.tap``."""
        self._decoder.tap(layers)

    def features(self) -> list[Features]:
        """See ``Runner.features``."""
        return split_tokens(self._decoder.features(), self._rows)

    def release(self, slot: int, length: int = 0) -> None:
        """See ``Runner.release``."""
        self._cache.release(slot, length)

    def copy(self, source: int, slot: int, length: int) -> None:
        """See ``Runner.copy``."""
        self._cache.copy(source, slot, length)

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """See ``Runner.compact``."""
        self._cache.compact(slot, start, path)
