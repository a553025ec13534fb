"""Drafting with a head over the target's hidden states (EAGLE: Li et al. 2024, 2025).

A round begins with one row over the positions whose true states have arrived, which overwrites what
was drafted on guesses. Then a tree grows by a level a step: each node is read with the head's own
guess of the state before it. A chain is a tree without branches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from starsd.drafters.ahead import BRANCHES as OUTCOMES
from starsd.drafters.ahead import ROW, Ahead
from starsd.drafters.base import ModelDrafter
from starsd.drafters.interface import DraftSequence
from starsd.drafters.tree import Nodes
from starsd.engine.interface import HeadOutput, HeadRow, HeadRunner, Logits, States
from starsd.process.parts import Parts
from starsd.sampling.compiled import Ranked
from starsd.sampling.ranking import NONE, rank_all
from starsd.sampling.verification import ROOT
from starsd.settings.draft import DraftSettings

BRANCHES = 8
"""Candidates of a tree's node."""


class EagleDrafter(ModelDrafter[HeadRunner]):
    """Batched over sequences, under the target's own noise."""

    def __init__(
        self, runner: HeadRunner, settings: DraftSettings, parts: Parts | None = None
    ) -> None:
        super().__init__(runner, settings, parts)
        self._guesses: dict[int, dict[int, States]] = {}
        """By slot and node of its tree: the state ``[hidden]`` that the node's children are read
        with."""

    def release(self, slot: int) -> None:
        self._guesses.pop(slot, None)
        super().release(slot)

    def step(self, sequences: list[DraftSequence]) -> int:
        planned = self._plan(sequences)
        with self._parts.forward:
            outputs = self._runner.forward([row for _, row in planned])
        for (sequence, row), output in zip(planned, outputs, strict=True):
            if sequence.tree is None:
                self._read(sequence, row)
            if row.want:
                self._grow(sequence, output)
        return sum(len(row.tokens) for _, row in planned)

    def run_ahead(self, sequences: list[DraftSequence]) -> int:
        planned = self._ahead(sequences)
        with self._parts.forward:
            outputs = self._runner.forward([row for _, row in planned])
        for (sequence, row), output in zip(planned, outputs, strict=True):
            ahead = sequence.ahead
            assert ahead is not None
            if ahead.frontier == [ROOT]:
                self._have_read(sequence, row)
            ahead.grow(self._found(sequence, ahead, output, OUTCOMES))
            ahead.spent += len(row.tokens)
        return sum(len(row.tokens) for _, row in planned)

    # -- rows ------------------------------------------------------------------------------------

    def _ahead(self, sequences: list[DraftSequence]) -> list[tuple[DraftSequence, HeadRow]]:
        """At first the true states that have come with the last job, if it was foreseen."""
        planned, reading = [], []
        for sequence in sequences:
            if sequence.ahead is not None:
                planned.append((sequence, self._level(sequence, sequence.ahead)))
                continue
            trees = self._width(sequence) > 1
            sequence.ahead = Ahead(*sequence.verified(ROW), trees=trees, exact=False)
            self._guesses[sequence.slot] = {}
            if len(sequence.feed.rows):
                reading.append((sequence, self._unread(sequence, len(sequence.tokens))))
            else:
                sequence.ahead.frontier = []
        return planned + self._true_rows(reading)

    def _plan(self, sequences: list[DraftSequence]) -> list[tuple[DraftSequence, HeadRow]]:
        budget = self._settings.step_tokens
        planned, reading = [], []
        for sequence in sequences:
            if budget <= 0:
                break
            if sequence.tree is None:
                size = self._unread(sequence, min(budget, self._settings.prefill_chunk))
                reading.append((sequence, size))
            else:
                planned.append((sequence, self._level(sequence, sequence.tree)))
                size = len(planned[-1][1].tokens)
            budget -= size
        return planned + self._true_rows(reading)

    def _unread(self, sequence: DraftSequence, chunk: int) -> int:
        """Positions of the next true row."""
        return min(chunk, len(sequence.tokens) - 1 - _next_true(sequence))

    def _true_rows(
        self, reading: Sequence[tuple[DraftSequence, int]]
    ) -> list[tuple[DraftSequence, HeadRow]]:
        """Each sequence's next positions, their states fused all at once."""
        if not reading:
            return []
        features = [one.feed.of(_next_true(one), size) for one, size in reading]
        with self._parts.forward:
            states = _finite(self._runner.fuse(np.concatenate(features)))
        rows = []
        for sequence, size in reading:
            rows.append((sequence, _true_row(sequence, states[:size])))
            states = states[size:]
        return rows

    def _level(self, sequence: DraftSequence, tree: Nodes) -> HeadRow:
        """The nodes to expand after those that lead to them; of a chain the last is enough."""
        nodes, tokens, parents = tree.branch()
        guesses = self._guesses[sequence.slot]
        before = [ROOT if parent == ROOT else nodes[parent] for parent in parents]
        states = np.array([guesses[node] for node in before])
        start = len(sequence.tokens) - 1 - sequence.feed.origin
        if tree is sequence.tree and self._width(sequence) == 1:
            return HeadRow(sequence.slot, tokens[-1:], states[-1:], start + len(tokens) - 1)
        return HeadRow(sequence.slot, tokens, states, start, len(tree.frontier), parents)

    def _width(self, sequence: DraftSequence) -> int:
        """Nodes that a level may have: 1 makes a chain."""
        branches = self._settings.trees != "off" and sequence.max_nodes > sequence.depth
        return sequence.max_nodes if branches else 1

    # -- results ---------------------------------------------------------------------------------

    def _read(self, sequence: DraftSequence, row: HeadRow) -> None:
        """True states are in the cache; a new proposal may start."""
        self._have_read(sequence, row)
        if row.want:
            width = self._width(sequence)
            sequence.begin(max(sequence.depth, width), width, self._settings.draft_confidence)
            self._guesses[sequence.slot] = {}

    def _have_read(self, sequence: DraftSequence, row: HeadRow) -> None:
        read = sequence.feed.origin + row.start + len(row.tokens)
        sequence.cached = read + 1
        sequence.feed.forget(read)

    def _grow(self, sequence: DraftSequence, output: HeadOutput) -> None:
        assert sequence.tree is not None
        count = min(BRANCHES, self._width(sequence))
        sequence.grow(self._found(sequence, sequence.tree, output, count))
        if sequence.tree is None:
            del self._guesses[sequence.slot]

    def _found(
        self, sequence: DraftSequence, nodes: Nodes, output: HeadOutput, count: int
    ) -> list[Ranked]:
        """Candidates of each node of the frontier, whose guesses are kept."""
        states = output.states.copy()
        self._guesses[sequence.slot].update(zip(nodes.frontier, states, strict=True))
        paths = [*map(nodes.path, nodes.frontier)]
        found = self._candidates(sequence, paths, output.logits, count)
        sound = np.logical_and.reduce(np.isfinite(states), axis=1)
        return [one if fine else NONE for one, fine in zip(found, sound, strict=True)]

    def _candidates(
        self, sequence: DraftSequence, paths: list[tuple[int, ...]], logits: Logits, count: int
    ) -> list[Ranked]:
        """Of each path's end; none where the sequence's own sampling leaves none."""
        ids = self._runner.draft_ids
        ids = ids[: bisect_left(ids, sequence.vocab_limit)]
        considered = self._settings.draft_candidates
        with self._parts.sampling:
            return rank_all(
                logits[:, : len(ids)],
                sequence.sampling,
                sequence.tokens,
                paths,
                considered,
                count,
                ids,
            )


def _next_true(sequence: DraftSequence) -> int:
    """The first position not yet read with its true state; the last one that has one is read again
    if it is asked for once more."""
    return min(sequence.cached - 1, len(sequence.tokens) - 2)


def _true_row(sequence: DraftSequence, states: States) -> HeadRow:
    start = _next_true(sequence)
    last = start + len(states) + 1
    drafts = sequence.ahead is not None or not sequence.complete
    want = int(last == len(sequence.tokens) and drafts)
    tokens = sequence.tokens[start + 1 : last]
    return HeadRow(sequence.slot, tokens, states, start - sequence.feed.origin, want)


def _finite(states: States) -> States:
    """What overflowed says nothing, and must not stay in the cache."""
    return np.nan_to_num(states, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
