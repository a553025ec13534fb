"""What one forward computes: a row for every sequence that moves, within the tokens of a step."""

from __future__ import annotations

from typing import NamedTuple

from services.target.guess import NOTHING, Guess
from services.target.sequence import Sequence
from services.target.slots import Slots
from starsd.engine.interface import Row, Runner, SlotState
from starsd.settings.target import TargetSettings


class Planned(NamedTuple):
    """A sequence and its row of this step's forward."""

    sequence: Sequence
    row: Row


class Packer:
    """Packs the sequences that hold slots."""

    def __init__(self, runner: Runner, slots: Slots, settings: TargetSettings) -> None:
        self._runner = runner
        self._slots = slots
        self._settings = settings

    def plan(self) -> list[Planned]:
        """Decoding rows first, then prefill chunks, within the token budget of a step."""
        budget = self._settings.step_tokens
        planned = []
        for sequence in sorted(self._slots.ready(), key=lambda one: not one.decoding):
            if budget > 0:
                row = self._row(sequence, budget)
                planned.append(Planned(sequence, row))
                budget -= len(row.tokens)
        return planned

    def _row(self, sequence: Sequence, budget: int) -> Row:
        """A prefill chunk; its last one, and every row after it, also carries the proposal."""
        whole = self._runner.state is SlotState.STEPS
        chunk = len(sequence.tokens) if whole else min(budget, self._settings.prefill_chunk)
        tokens = sequence.tokens[sequence.cached : sequence.cached + chunk]
        if sequence.cached + len(tokens) < len(sequence.tokens):
            return Row(sequence.slot, tokens, sequence.cached, want=0)
        sequence.proposal = guess = self._affordable(sequence, budget - len(tokens))
        above = len(tokens) - 1
        return Row(
            sequence.slot,
            tokens + guess.tokens,
            sequence.cached,
            want=1 + len(guess),
            parents=guess.parents and [*range(-1, above), *(above + 1 + p for p in guess.parents)],
        )

    def _affordable(self, sequence: Sequence, budget: int) -> Guess:
        """As much of its proposal as tokens of this step and memory allow. A tree stands alone:
        a row that prefills, too, may be too long for one."""
        sequence.obey(jump=self._settings.drafting)
        guess, length = sequence.proposal.cut(budget), len(sequence.tokens)
        if guess.parents is not None and not sequence.decoding:
            return NOTHING
        return guess.cut(self._slots.stretch(sequence, length + len(guess)) - length)
