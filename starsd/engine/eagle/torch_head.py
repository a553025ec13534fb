"""``starsd.engine.interface.HeadRunner`` in torch: EAGLE-1 and EAGLE-3, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from starsd.engine.batch import Packed, Packer
from starsd.engine.cuda import to_device, to_host, use_full_precision
from starsd.engine.decoder import Rope
from starsd.engine.eagle.checkpoint import Head
from starsd.engine.eagle.modules import Parts, make_eagle
from starsd.engine.eagle.rows import outputs_of, plain_rows, states_of
from starsd.engine.interface import Features, HeadOutput, HeadRow, Row, States
from starsd.engine.kv_budget import plan_kv
from starsd.engine.kv_cache import KvCache
from starsd.engine.linears import Pack
from starsd.engine.native.rope import rope_tables
from starsd.engine.rows import by_slot, put_back, split_tokens
from starsd.errors import EngineError


class TorchHead:
    """Where memory is not taken as it is written, fewer slots than asked for may fit
    ``kv_memory``."""

    def __init__(
        self,
        head: Head,
        pack: Pack,
        *,
        dtype: torch.dtype,
        device: torch.device,
        slots: int,
        max_length: int,
        kv_memory: int,
        batch_invariant: bool = False,
    ) -> None:
        """Raises ConfigError: ``kv_memory`` bytes do not hold one sequence of ``max_length``, or
        weights that cannot be read."""
        of = head.of
        if device.type == "cuda":
            use_full_precision()
        self._dtype, self._device = dtype, device
        parts = Parts(head.weights, pack, device, dtype, of.rms_norm_eps)
        self._eagle = make_eagle(head, parts)
        turns = rope_tables(of.rope_parameters, of.head_dim, max_length)
        cos, sin = (torch.from_numpy(table).to(device, dtype) for table in turns)
        self._rope = Rope.of(cos, sin)
        position_bytes = 2 * of.num_key_value_heads * of.head_dim * dtype.itemsize
        lazily = device.type == "cpu"
        plan = plan_kv(kv_memory, position_bytes, slots, max_length, lazily=lazily)
        self.slots, self.kv_blocks = plan
        self._cache = KvCache(self.slots, max_length)
        self._packer = Packer(self._cache, dtype, device, invariant=batch_invariant)
        self.max_length = max_length
        self.layers = head.layers
        self.hidden_size = of.hidden_size
        self.vocab_size = of.vocab_size
        self.draft_ids = head.draft_ids
        self.revision = head.revision
        self.target_revision = head.target.revision

    def parts(self) -> dict[str, float]:
        """torch's are not told apart."""
        return {}

    @torch.inference_mode()
    def fuse(self, features: Features) -> States:
        """See ``HeadRunner.fuse``."""
        bits = features.astype(np.int16)  # a copy: torch does not like what it may not write to
        brief = to_device(bits, self._device)
        states = self._eagle.fuse(brief.view(torch.bfloat16).to(self._dtype))
        found: States = to_host(states.float())
        return found

    @torch.inference_mode()
    def forward(self, rows: Sequence[HeadRow]) -> list[HeadOutput]:
        """See ``HeadRunner.forward``.

        Raises:
            EngineError: a row that does not fit its slot or the vocabulary, or torch failed.
        """
        if not rows:
            return []
        plain = plain_rows(rows, self.slots, self.max_length, self.vocab_size, self.hidden_size)
        order = by_slot(plain)
        plain = [plain[index] for index in order]
        try:
            outputs = self._compute(plain, states_of([rows[index] for index in order]))
        except RuntimeError as error:
            tokens = sum(len(row.tokens) for row in plain)
            raise EngineError(f"forward of {tokens} tokens: {error}") from error
        return put_back(outputs, order)

    def _compute(self, rows: Sequence[Row], states: States) -> list[HeadOutput]:
        packed = self._packer.pack(rows)
        found = self._step(packed, states)
        wanted = found.index_select(0, packed.wanted)
        sound = found.isfinite().all(-1)
        logits, guesses = to_host(self._eagle.logits(wanted).float()), to_host(wanted.float())
        self._bury_overflows(rows, to_host(sound))
        return outputs_of(logits, guesses, rows)

    def _step(self, packed: Packed, states: States) -> Tensor:
        """``[T, hidden]``; in batch-invariant mode a pack has more tokens than there are states."""
        tokens = packed.ids[0]
        given = to_device(states, self._device).to(self._dtype)
        given = functional.pad(given, (0, 0, 0, len(tokens) - len(given)))
        rope = self._rope.at(packed.positions[0])
        return self._eagle.step(tokens, given, rope, packed.batch)

    def _bury_overflows(self, rows: Sequence[Row], sound: np.ndarray) -> None:
        """What is not finite would survive any mask; it must not outlive its sequence."""
        for row, part in zip(rows, split_tokens(sound, rows), strict=True):
            if not part.all():
                self._cache.clear(row.slot)

    def release(self, slot: int) -> None:
        """See ``HeadRunner.release``."""
        self._cache.release(slot)
