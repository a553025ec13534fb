"""The torch runner: rows in, logits out, over one KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from starsd.engine.batch import Packer
from starsd.engine.cuda import Graphs, to_host, use_full_precision
from starsd.engine.decoder import Decoder, Outcome
from starsd.engine.forward import Forward
from starsd.engine.grid import Grid, Replays, padded_length
from starsd.engine.interface import KV_BLOCK, Features, Logits, Row, SlotState
from starsd.engine.kv_budget import plan_kv
from starsd.engine.kv_cache import KvCache
from starsd.engine.rows import by_slot, check_rows, put_back, split, split_tokens
from starsd.errors import ConfigError, EngineError


class TorchRunner:
    """``starsd.engine.interface.Runner`` over a model's forward and a slot cache.

    Where memory is not taken as it is written, fewer slots than asked for may fit ``kv_memory``.
    """

    state = SlotState.ROLLS_BACK

    def __init__(
        self,
        compute: Forward,
        *,
        vocab_size: int,
        dtype: torch.dtype,
        device: torch.device,
        slots: int,
        max_length: int,
        kv_memory: int,
        revision: str,
        fingerprint: str,
        batch_invariant: bool = False,
        graphs: Graphs | None = None,
        windows: Sequence[int | None] = (),
    ) -> None:
        """``graphs`` record the short steps of a ``Decoder`` without ``windows`` (of its layers,
        see ``layer_windows``); other forwards run as they come.

        Raises:
            ConfigError: ``kv_memory`` bytes do not hold one sequence of ``max_length``, or the
                device does not have them.
            UnsupportedModelError: the model needs attention that the engine does not compute.
        """
        self._compute = compute
        self.vocab_size = vocab_size
        self.slots = 1
        self.max_length = max_length
        self.revision = revision
        self.fingerprint = fingerprint
        self.batch_invariant = batch_invariant
        self.invariance_holds: bool | None = None
        if device.type == "cuda":
            use_full_precision()
        recorded = graphs is not None and isinstance(compute, Decoder) and not any(windows)
        length = padded_length(max_length) if recorded else max_length
        self._cache = KvCache(self.slots, length)
        self._packer = Packer(
            self._cache, dtype, device, invariant=batch_invariant, windows=windows
        )
        self._replays: Replays | None = None
        self._features = torch.empty(0, 0)
        self._rows: Sequence[Row] = ()
        self._warm_up()
        needed, lazily = self._cache.position_bytes, device.type == "cpu"
        self.slots, self.kv_blocks = plan_kv(kv_memory, needed, slots, length, lazily=lazily)
        self._cache.resize(self.slots)
        self._warm_up()
        if graphs is not None and isinstance(compute, Decoder) and recorded:
            grid = Grid(self._cache, dtype, device, invariant=batch_invariant)
            self._replays = Replays(compute, graphs, grid)
            self._record_one()

    @property
    def cache_bytes(self) -> int:
        """At most."""
        return self.kv_blocks * KV_BLOCK * self._cache.position_bytes

    def parts(self) -> dict[str, float]:
        """torch's are not told apart."""
        return {}

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """See ``Runner.forward``.

        Raises:
            EngineError: a row that does not fit its slot or the vocabulary, or torch failed.
        """
        if not rows:
            return []
        check_rows(rows, self.slots, self.max_length, self.vocab_size)
        order = by_slot(rows)
        ordered = [rows[index] for index in order]
        try:
            outcome = self._outcome(ordered)
            logits = to_host(outcome.logits.float())
        except RuntimeError as error:
            tokens = sum(len(row.tokens) for row in rows)
            raise EngineError(f"forward of {tokens} tokens: {error}") from error
        self._features, self._rows = outcome.features, rows
        parts = split(logits, ordered)
        self._bury_overflows(ordered, parts)
        return put_back(parts, order)

    def _outcome(self, rows: Sequence[Row]) -> Outcome:
        """On the device; ``rows`` are in the order of their slots."""
        replayed = None if self._replays is None else self._replays.outcome(rows)
        return self._compute(self._packer.pack(rows)) if replayed is None else replayed

    def tap(self, layers: Sequence[int]) -> None:
        """See ``Runner.tap``."""
        self._compute.tap(layers)

    @torch.inference_mode()
    def features(self) -> list[Features]:
        """See ``Runner.features``; they are copied from the device here."""
        order = by_slot(self._rows)
        ordered = [self._rows[index] for index in order]
        brief = to_host(self._features.to(torch.bfloat16).view(torch.int16)).view(np.uint16)
        return put_back(split_tokens(brief, ordered), order)

    def release(self, slot: int, length: int = 0) -> None:
        """See ``Runner.release``."""
        self._cache.release(slot, length)

    @torch.inference_mode()
    def copy(self, source: int, slot: int, length: int) -> None:
        """See ``Runner.copy``."""
        self._cache.copy(source, slot, length)

    @torch.inference_mode()
    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """See ``Runner.compact``."""
        self._cache.compact(slot, start, path)

    def _bury_overflows(self, rows: Sequence[Row], parts: Sequence[Logits]) -> None:
        """A NaN fills a whole row of logits; it must not outlive its sequence in the slot."""
        for row, logits in zip(rows, parts, strict=True):
            if np.isnan(logits[:, 0]).any():
                self._cache.clear(row.slot)

    def _warm_up(self) -> None:
        """One token: shapes the cache of every layer and meets every unsupported feature."""
        try:
            self.forward([Row(slot=0, tokens=[0], start=0)])
        except EngineError as error:
            raise ConfigError(
                f"no room for {self.slots} KV slots of {self.max_length} positions; lower "
                f"STARSD_KV_MEMORY or STARSD_MAX_LENGTH ({error})"
            ) from error
        self.release(0)

    def _record_one(self) -> None:
        """What cannot be recorded must not come to light in the middle of an answer."""
        try:
            self.forward([Row(slot=0, tokens=[0], start=0)])
        except EngineError as error:
            raise ConfigError(
                f"STARSD_CUDA_GRAPHS=true: a step cannot be recorded; false runs without ({error})",
                param="STARSD_CUDA_GRAPHS",
            ) from error
