"""The runner of models whose state is a sum over the text: recurrent layers, alone or mixed with
attention.

The state is transformers' own, one per slot. Nothing takes a token out of it; a row that verifies a
proposal can be undone by a copy made before it, where that pays (docs/models.md has the figures).
States of unlike lengths don't batch, so rows are computed one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from starsd.engine.interface import Features, Logits, Row, SlotState
from starsd.engine.kv_budget import blocks_of
from starsd.engine.rows import check_rows
from starsd.errors import ConfigError, EngineError

_STEPS = frozenset({"falcon_mamba", "jamba", "mamba"})
"""Their scan starts from zero whatever the state, so more than one token may only come first."""
_UNDOES = frozenset({"lfm2", "qwen3_5_text"})
"""Five tokens from a state cost them little more than one; others pay for five single ones."""
_AGAIN = 8
"""Undone tokens that are computed again together with what follows; more go ahead of it, so that a
copy lies behind them and they are not computed a third time."""


def slot_state(model: Any, *, invariant: bool) -> SlotState:
    """What the model's state allows. ``invariant``: prompts come whole, for a row's bits depend on
    how its text was cut into rows."""
    kind = model.config.get_text_config().model_type
    if invariant or kind in _STEPS:
        return SlotState.STEPS
    return SlotState.UNDOES if kind in _UNDOES else SlotState.GROWS


@dataclass
class _Slot:
    """What transformers keeps of the first ``length`` tokens; None: of none.

    ``before`` is what it was before the last row, whose ``tokens`` can then be undone.
    """

    kept: Any = None
    length: int = 0
    before: _Slot | None = None
    tokens: Sequence[int] = ()

    @property
    def lowest(self) -> int:
        """Where a row may start at least, unless at 0."""
        return self.length if self.before is None else self.before.length


class RecurrentRunner:
    """``starsd.engine.interface.Runner`` over a transformers model and its own caches.

    A row's result depends on how its text was cut into rows, never on other rows. So where prompts
    come whole it is batch-invariant.
    """

    batch_invariant = True
    invariance_holds: bool | None = None

    def __init__(
        self,
        model: Any,
        *,
        state: SlotState,
        slots: int,
        max_length: int,
        revision: str,
        fingerprint: str,
    ) -> None:
        self._model = model
        self._name = "state" if model.config.model_type == "rwkv" else "cache"
        self._slots = [_Slot() for _ in range(slots)]
        self.state = state
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.slots = slots
        self.kv_blocks = slots * blocks_of(max_length)
        self.max_length = max_length
        self.revision = revision
        self.fingerprint = fingerprint
        self.forward([Row(slot=0, tokens=[0], start=0)])

    @property
    def cache_bytes(self) -> int:
        """Now; where a model has attention layers too, they grow with the text."""
        return sum(tensor.nbytes for slot in self._slots for tensor in _tensors(slot.kept))

    def parts(self) -> dict[str, float]:
        """transformers' are not told apart."""
        return {}

    def tap(self, layers: Sequence[int]) -> None:
        """Raises ConfigError: what undoing computes again would be in the way."""
        if layers:
            raise ConfigError("a draft head needs hidden states, and a recurrent model gives none")

    def features(self) -> list[Features]:
        """None, since there are no taps."""
        return []

    def release(self, slot: int, length: int = 0) -> None:
        """See ``Runner.release``; all of it goes."""
        self._slots[slot] = _Slot()

    def copy(self, source: int, slot: int, length: int) -> None:
        """Raises EngineError: a state is one of the whole text."""
        raise EngineError(f"slot {source}: its state cannot be cut at {length} tokens")

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """Raises EngineError: there are no trees here."""
        raise EngineError(f"slot {slot}: a tree, and this model keeps one text")

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """See ``Runner.forward``.

        Raises:
            EngineError: a row that its slot cannot take, which changes nothing, or torch failed.
        """
        check_rows(rows, self.slots, self.max_length, self.vocab_size)
        for row in rows:
            self._check(row)
        return [self._row(row) for row in rows]

    def _check(self, row: Row) -> None:
        slot = self._slots[row.slot]
        if row.start and not slot.lowest <= row.start <= slot.length:
            raise EngineError(
                f"row of slot {row.slot} at {row.start}: this model's state cannot be rolled back "
                f"so, it goes on at {slot.lowest} to {slot.length} or starts anew at 0"
            )
        if row.parents is not None:
            raise EngineError(f"row of slot {row.slot}: a tree, and this model keeps one text")

    def _row(self, row: Row) -> Logits:
        """A row that fails takes its slot's state with it."""
        slot = self._slots[row.slot] if row.start else _Slot()
        self._slots[row.slot] = _Slot()
        try:
            if row.start < slot.length and slot.before is not None:
                slot, row = self._undo(slot, slot.before, row)
            self._slots[row.slot], logits = self._advance(slot, row)
        except RuntimeError as error:
            raise EngineError(f"forward of {len(row.tokens)} tokens: {error}") from error
        found: Logits = logits.float().cpu().numpy()
        return found

    def _undo(self, slot: _Slot, before: _Slot, row: Row) -> tuple[_Slot, Row]:
        """The slot as it was, and the row with those tokens before it that are kept."""
        again = slot.tokens[: row.start - before.length]
        if len(again) > _AGAIN:
            done, _ = self._advance(before, Row(row.slot, again, before.length, want=0))
            return done, row
        return before, replace(row, tokens=[*again, *row.tokens], start=before.length)

    def _advance(self, slot: _Slot, row: Row) -> tuple[_Slot, Tensor]:
        """The slot after a row that starts where it ends; logits ``[want, vocabulary]``."""
        before = None
        if self.state is SlotState.UNDOES and row.want > 1:
            before = _Slot(copy.deepcopy(slot.kept), slot.length)
        after = _Slot(slot.kept, slot.length, before, row.tokens)
        steps = self.state is SlotState.STEPS and row.start > 0
        pieces = [[token] for token in row.tokens] if steps else [row.tokens]
        return after, torch.cat([self._feed(after, piece, row) for piece in pieces])

    def _feed(self, slot: _Slot, tokens: Sequence[int], row: Row) -> Tensor:
        """Logits of those of the tokens that the row wants: ``[wanted, vocabulary]``."""
        end = slot.length + len(tokens)
        first = max(slot.length, row.start + len(row.tokens) - row.want)
        device = self._model.device
        output = self._model(
            input_ids=torch.tensor([list(tokens)], device=device),
            position_ids=torch.arange(slot.length, end, device=device)[None],
            logits_to_keep=torch.arange(first, end, device=device) - slot.length,
            use_cache=True,
            **{self._name: slot.kept},
        )
        slot.kept, slot.length = getattr(output, self._name), end
        logits: Tensor = output.logits[0]
        return logits


def _tensors(kept: Any) -> Iterator[Tensor]:
    """Those of a transformers cache, which has layers of several kinds, or of a plain list."""
    if isinstance(kept, Tensor):
        yield kept
    elif isinstance(kept, Mapping):
        yield from _tensors(list(kept.values()))
    elif isinstance(kept, list | tuple):
        for part in kept:
            yield from _tensors(part)
    elif hasattr(kept, "__dict__"):
        yield from _tensors(vars(kept))
