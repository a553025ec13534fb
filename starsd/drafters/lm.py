"""Drafting with a causal language model that shares the target's tokenizer."""

from __future__ import annotations

from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Logits, Row, Runner
from starsd.errors import EngineError
from starsd.sampling.sampler import propose
from starsd.settings import DraftSettings


class LmDrafter:
    """Autoregressive drafting under the target's own noise, batched over sequences."""

    def __init__(self, runner: Runner, settings: DraftSettings) -> None:
        self._runner = runner
        self._settings = settings

    @property
    def slots(self) -> int:
        return self._runner.slots

    @property
    def vocab_size(self) -> int:
        return self._runner.vocab_size

    @property
    def max_length(self) -> int:
        return self._runner.max_length

    def step(self, sequences: list[DraftSequence]) -> None:
        planned = self._plan(sequences)
        logits = self._runner.forward([row for _, row in planned])
        for (sequence, row), rows in zip(planned, logits, strict=True):
            sequence.cached = row.start + len(row.tokens)
            if row.want:
                self._draft(sequence, rows[-1][: sequence.vocab_limit])

    def _plan(self, sequences: list[DraftSequence]) -> list[tuple[DraftSequence, Row]]:
        budget = self._settings.step_tokens
        planned = []
        for sequence in sequences:
            if budget > 0:
                row = self._row(sequence, min(budget, self._settings.prefill_chunk))
                planned.append((sequence, row))
                budget -= len(row.tokens)
        return planned

    def _row(self, sequence: DraftSequence, chunk: int) -> Row:
        """The next uncached tokens; the last one again if its logits are wanted once more."""
        text = sequence.tokens + sequence.drafted
        start = min(sequence.cached, len(text) - 1)
        tokens = text[start : start + chunk]
        reaches_end = start + len(tokens) == len(text)
        return Row(sequence.slot, tokens, start, want=int(reaches_end and not sequence.complete))

    def _draft(self, sequence: DraftSequence, logits: Logits) -> None:
        """One more token, unless the sequence's own sampling makes that impossible."""
        history = sequence.tokens + sequence.drafted
        candidates = self._settings.draft_candidates
        try:
            token = propose(logits, sequence.sampling, len(history), history, candidates)
        except EngineError:
            sequence.depth = len(sequence.drafted)
        else:
            sequence.drafted.append(token)
