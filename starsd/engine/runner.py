"""The torch runner: rows in, logits out, over one KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from starsd.engine.batch import Packer
from starsd.engine.forward import Forward
from starsd.engine.interface import Logits, Row
from starsd.engine.kv_cache import KvCache
from starsd.engine.rows import check_rows, split
from starsd.errors import ConfigError, EngineError


class TorchRunner:
    """``starsd.engine.interface.Runner`` over a model's forward and a slot cache.

    The cache is allocated here, once.
    """

    def __init__(
        self,
        compute: Forward,
        *,
        vocab_size: int,
        dtype: torch.dtype,
        device: torch.device,
        slots: int,
        max_length: int,
        revision: str,
        fingerprint: str,
        batch_invariant: bool = False,
    ) -> None:
        """
        Raises:
            ConfigError: the KV cache does not fit the memory.
            UnsupportedModelError: the model needs attention that the engine does not compute.
        """
        self._compute = compute
        self.vocab_size = vocab_size
        self.slots = slots
        self.max_length = max_length
        self.revision = revision
        self.fingerprint = fingerprint
        self.batch_invariant = batch_invariant
        self.invariance_holds: bool | None = None
        self._cache = KvCache(slots, max_length)
        self._packer = Packer(self._cache, dtype, device, invariant=batch_invariant)
        self._warm_up()

    @property
    def cache_bytes(self) -> int:
        """Fixed for the life of the runner."""
        return self._cache.nbytes

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """See ``Runner.forward``.

        Raises:
            EngineError: a row that does not fit its slot or the vocabulary, or torch failed.
        """
        if not rows:
            return []
        check_rows(rows, self.slots, self.max_length, self.vocab_size)
        by_slot = sorted(range(len(rows)), key=lambda index: rows[index].slot)
        ordered = [rows[index] for index in by_slot]
        packed = self._packer.pack(ordered)
        try:
            logits = self._compute(packed)
        except RuntimeError as error:
            raise EngineError(f"forward of {packed.ids.shape[1]} tokens: {error}") from error
        parts = split(logits.float().cpu().numpy(), ordered)
        self._bury_overflows(ordered, parts)
        found = dict(zip(by_slot, parts, strict=True))
        return [found[index] for index in range(len(rows))]

    @torch.inference_mode()
    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """After a tree row at ``start``: keep the accepted ``path`` (indices into its tokens, in
        order), so that it lies at ``start, start + 1, ...`` like a chain."""
        self._cache.compact(slot, start, path)

    def _bury_overflows(self, rows: Sequence[Row], parts: Sequence[Logits]) -> None:
        """A NaN fills a whole row of logits; it must not outlive its sequence in the slot."""
        for row, logits in zip(rows, parts, strict=True):
            if np.isnan(logits[:, 0]).any():
                self._cache.clear(row.slot)

    def _warm_up(self) -> None:
        """One token: allocates the cache of every layer and meets every unsupported feature."""
        try:
            self.forward([Row(slot=0, tokens=[0], start=0)])
        except EngineError as error:
            raise ConfigError(
                f"no room for {self.slots} KV slots of {self.max_length} positions; lower "
                f"STARSD_MAX_SEQUENCES or STARSD_MAX_LENGTH ({error})"
            ) from error
