"""Drafting with a causal language model that shares the target's tokenizer.

A chain grows by a token a step. A tree grows by a level: one row holds its nodes so far, after the
prefix, because sixteen rows cost about what one costs, so nothing of it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

from starsd.drafters.ahead import BRANCHES as OUTCOMES
from starsd.drafters.ahead import ROW, Ahead
from starsd.drafters.base import ModelDrafter
from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Logits, Row, Runner
from starsd.sampling.compiled import Ranked
from starsd.sampling.ranking import rank_all

BRANCHES = 4
"""Candidates of a node."""
WORTH = 0.05
"""Confidence below which no node is worth a draft step: a level that begins lower gains less than
what the step takes of a round."""


class LmDrafter(ModelDrafter[Runner]):
    """Autoregressive drafting under the target's own noise, batched over sequences."""

    def step(self, sequences: list[DraftSequence]) -> int:
        planned = self._plan(sequences)
        with self._parts.forward:
            logits = self._runner.forward([row for _, row in planned])
        for (sequence, row), scores in zip(planned, logits, strict=True):
            rows = scores[:, : sequence.vocab_limit]
            if sequence.tree is None:
                sequence.cached = row.start + len(row.tokens)
                if row.want and self._branches(sequence):
                    sequence.begin(sequence.max_nodes, sequence.max_nodes, WORTH)
            if sequence.tree is not None:
                paths = map(sequence.tree.path, sequence.tree.frontier)
                sequence.grow(self._found(sequence, paths, rows, BRANCHES))
            elif row.want:
                sequence.follow(*self._found(sequence, [sequence.drafted], rows, 1))
        return sum(len(row.tokens) for _, row in planned)

    def run_ahead(self, sequences: list[DraftSequence]) -> int:
        planned = [self._ahead(sequence) for sequence in sequences]
        with self._parts.forward:
            logits = self._runner.forward([row for _, row in planned])
        for sequence, (ahead, row), scores in zip(sequences, planned, logits, strict=True):
            sequence.cached = len(sequence.tokens)
            rows, paths = scores[:, : sequence.vocab_limit], map(ahead.path, ahead.frontier)
            ahead.grow(self._found(sequence, paths, rows, OUTCOMES))
            ahead.spent += len(row.tokens)
        return sum(len(row.tokens) for _, row in planned)

    def _ahead(self, sequence: DraftSequence) -> tuple[Ahead, Row]:
        """At first what was proposed, after the tokens of the prefix that are yet to be read."""
        if sequence.ahead is not None:
            _, tokens, parents = sequence.ahead.branch()
            want = len(sequence.ahead.frontier)
            return sequence.ahead, Row(sequence.slot, tokens, len(sequence.tokens), want, parents)
        start = min(sequence.cached, len(sequence.tokens) - 1)
        unread = sequence.tokens[start:]
        seed, above = sequence.verified(ROW - len(unread))
        sequence.ahead = Ahead(
            seed, above, trees=self._branches(sequence), exact=True, at_once=True
        )
        parents = [*range(-1, len(unread) - 1), *(len(unread) + parent for parent in above)]
        row = Row(sequence.slot, [*unread, *seed], start, 1 + len(seed), parents)
        return sequence.ahead, row

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
        if sequence.tree is not None:
            _, tokens, parents = sequence.tree.branch()
            want = len(sequence.tree.frontier)
            return Row(sequence.slot, tokens, len(sequence.tokens), want, parents)
        text = sequence.tokens + sequence.drafted
        start = min(sequence.cached, len(text) - 1)
        tokens = text[start : start + chunk]
        reaches_end = start + len(tokens) == len(text)
        return Row(sequence.slot, tokens, start, want=int(reaches_end and not sequence.complete))

    def _branches(self, sequence: DraftSequence) -> bool:
        return self._settings.trees == "on" and sequence.max_nodes > sequence.depth

    def _found(
        self, sequence: DraftSequence, paths: Iterable[Many[int]], logits: Logits, count: int
    ) -> list[Ranked]:
        """Candidates after the prefix and each of these paths."""
        considered, text = self._settings.draft_candidates, sequence.tokens
        with self._parts.sampling:
            return rank_all(logits, sequence.sampling, text, [*paths], considered, count)
