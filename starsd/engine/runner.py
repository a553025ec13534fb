"""The torch runner: the only file that calls ``model(...)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from starsd.engine.attention import BATCH
from starsd.engine.batch import Packer
from starsd.engine.interface import Logits, Row
from starsd.engine.invariant import make_linears_tiled
from starsd.engine.kv_cache import KvCache
from starsd.errors import ConfigError, EngineError


class TorchRunner:
    """``starsd.engine.interface.Runner`` over a transformers causal LM and a slot cache.

    ``model`` was loaded with our attention (``starsd.engine.attention``). The cache is allocated
    here, once.
    """

    def __init__(
        self,
        model: Any,
        *,
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
        self._model = model
        self.slots = slots
        self.max_length = max_length
        self.revision = revision
        self.fingerprint = fingerprint
        self.batch_invariant = batch_invariant
        self.invariance_holds: bool | None = None
        if batch_invariant:
            make_linears_tiled(model)
        self._cache = KvCache(slots, max_length)
        self._packer = Packer(self._cache, model.dtype, model.device, invariant=batch_invariant)
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
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
        packed = self._packer.pack(rows)
        try:
            output = self._model(
                input_ids=packed.ids,
                position_ids=packed.positions,
                logits_to_keep=packed.wanted,
                use_cache=False,
                **{BATCH: packed.batch},
            )
        except RuntimeError as error:
            raise EngineError(f"forward of {packed.ids.shape[1]} tokens: {error}") from error
        parts = _split(output.logits[0].float().cpu().numpy(), rows)
        self._bury_overflows(rows, parts)
        return parts

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


def _split(logits: Logits, rows: Sequence[Row]) -> list[Logits]:
    parts: list[Logits] = []
    used = 0
    for row in rows:
        parts.append(logits[used : used + row.want])
        used += row.want
    return parts
