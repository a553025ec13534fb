"""``starsd.engine.interface.HeadRunner`` of EAGLE-3 heads, by compiled code."""

from __future__ import annotations

from collections.abc import Sequence

from starsd.engine.eagle.checkpoint import Head
from starsd.engine.eagle.rows import outputs_of, plain_rows, states_of
from starsd.engine.interface import Features, HeadOutput, HeadRow, States
from starsd.engine.kv_budget import plan_kv
from starsd.engine.native.abi import PARTS
from starsd.engine.native.decoder import check_trees
from starsd.engine.native.head import HeadDecoder


class NativeHead:
    """Rows never depend on their neighbours here."""

    def __init__(
        self, head: Head, decoder: HeadDecoder, *, slots: int, max_length: int, kv_memory: int
    ) -> None:
        """Raises ConfigError: ``kv_memory`` bytes do not hold one sequence of ``max_length``."""
        self._decoder = decoder
        self._cache = decoder.cache
        plan = plan_kv(kv_memory, self._cache.position_bytes, slots, max_length, lazily=True)
        self.kv_blocks = plan.blocks
        self.slots = slots
        self.max_length = max_length
        self.layers = head.layers
        self.hidden_size = head.of.hidden_size
        self.vocab_size = head.of.vocab_size
        self.draft_ids = head.draft_ids
        self.revision = head.revision
        self.target_revision = head.target.revision

    def parts(self) -> dict[str, float]:
        """Seconds that all calls spent on ``PARTS``."""
        return dict(zip(PARTS, (self._decoder.spent / 1e9).tolist(), strict=True))

    def fuse(self, features: Features) -> States:
        """See ``HeadRunner.fuse``. Raises EngineError: no memory."""
        return self._decoder.fuse(features)

    def forward(self, rows: Sequence[HeadRow]) -> list[HeadOutput]:
        """See ``HeadRunner.forward``.

        Raises:
            EngineError: a row that does not fit its slot or the vocabulary, or no memory.
        """
        if not rows:
            return []
        plain = plain_rows(rows, self.slots, self.max_length, self.vocab_size, self.hidden_size)
        check_trees(plain)
        return outputs_of(*self._decoder.forward_beside(plain, states_of(rows)), plain)

    def release(self, slot: int) -> None:
        """See ``HeadRunner.release``."""
        self._cache.release(slot)
