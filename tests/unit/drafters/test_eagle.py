"""Drafting with a head: rows, guesses, trees, and when to stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from starsd.drafters.eagle import BRANCHES, EagleDrafter
from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Features, HeadOutput, HeadRow
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample
from starsd.settings.draft import DraftSettings
from tests.scripted import VOCAB
from tests.scripted_head import (
    ScriptedHead,
    features_of,
    logits_of,
    make_head,
    state_after,
)

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12]


def make_drafter(head: ScriptedHead, **settings: Any) -> EagleDrafter:
    given: dict[str, Any] = {"draft_candidates": 0, "draft_confidence": 0.0, **settings}
    return EagleDrafter(head, DraftSettings(**given))


def states_of(tokens: list[int], first: int = 0) -> Features:
    """Of the positions before the last token, from ``first`` on."""
    states = [features_of(state_after(tokens[: at + 1])) for at in range(first, len(tokens) - 1)]
    return np.array(states, np.uint16).reshape(-1, 12)


def make_sequence(
    tokens: list[int], depth: int = 4, nodes: int = 0, slot: int = 0, **sampling: Any
) -> DraftSequence:
    params = SamplingParams(**{"seed": 3, "temperature": 0.8} | sampling)
    sequence = DraftSequence(slot=slot, sampling=params, vocab_limit=VOCAB)
    sequence.extend(0, tokens, depth, nodes, states_of(tokens))
    return sequence


def draft_all(drafter: EagleDrafter, *sequences: DraftSequence) -> int:
    """Steps until nothing is left to do."""
    steps = 0
    while work := [one for one in sequences if not one.idle]:
        drafter.step(work)
        steps += 1
    return steps


def continuation(tokens: list[int], params: SamplingParams, count: int) -> list[int]:
    """What the target samples next."""
    text = list(tokens)
    for _ in range(count):
        text.append(sample(logits_of(state_after(text)), params, len(text), text))
    return text[len(tokens) :]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_proposes_the_targets_own_samples(temperature: float) -> None:
    head = make_head()
    sequence = make_sequence(PROMPT, temperature=temperature)
    assert draft_all(make_drafter(head), sequence) == 4
    assert sequence.drafted == continuation(PROMPT, sequence.sampling, 4)
    assert sequence.parents == []  # a chain
    assert head.torn == 0


def test_true_states_replace_guesses() -> None:
    """Two of four were right: the head reads three positions anew, and no more."""
    head = make_head()
    drafter, sequence = make_drafter(head), make_sequence(PROMPT)
    draft_all(drafter, sequence)
    head.batches.clear()
    text = [*PROMPT, *sequence.drafted[:2], 200]
    sequence.extend(len(PROMPT), text[len(PROMPT) :], 4, features=states_of(text, len(PROMPT) - 1))
    draft_all(drafter, sequence)
    first = head.batches[0][0]
    assert (first.start, list(first.tokens)) == (7, text[-3:])
    assert [len(batch[0].tokens) for batch in head.batches] == [3, 1, 1, 1]
    assert sequence.drafted == continuation(text, sequence.sampling, 4)
    assert head.torn == 0
    assert head.fused == len(text) - 1


def test_the_same_prefix_once_more() -> None:
    head = make_head()
    drafter, sequence = make_drafter(head), make_sequence(PROMPT)
    draft_all(drafter, sequence)
    sequence.extend(len(PROMPT), [], 2, features=states_of([1]))
    draft_all(drafter, sequence)
    assert sequence.drafted == continuation(PROMPT, sequence.sampling, 2)
    assert head.torn == 0


def test_prefix_job_ends_idle_without_proposing() -> None:
    head = make_head()
    sequence = make_sequence(PROMPT, depth=0)
    assert draft_all(make_drafter(head, prefill_chunk=3), sequence) == 3
    assert sequence.drafted == []
    assert [row.want for batch in head.batches for row in batch] == [0, 0, 0]


def test_a_superseded_tree_is_dropped() -> None:
    head = make_head()
    drafter, sequence = make_drafter(head), make_sequence(PROMPT, nodes=15)
    drafter.step([sequence])
    drafter.step([sequence])
    text = [*PROMPT, 77]
    sequence.extend(len(PROMPT), [77], 4, features=states_of(text, len(PROMPT) - 1))
    draft_all(drafter, sequence)
    assert sequence.drafted == continuation(text, sequence.sampling, 4)
    assert head.torn == 0


# -- trees ---------------------------------------------------------------------------------------


def test_a_tree_grows_by_a_level_a_step() -> None:
    head = make_head()
    sequence = make_sequence(PROMPT, depth=3, nodes=15)
    assert draft_all(make_drafter(head), sequence) == 3
    assert len(sequence.drafted) == 15
    assert sequence.parents.count(-1) <= BRANCHES
    assert len(set(zip(sequence.parents, sequence.drafted, strict=True))) == 15
    levels = [batch[0] for batch in head.batches]
    assert [row.start for row in levels] == [0, 7, 7]
    assert all(row.parents is not None for row in levels[1:])
    assert head.torn == 0


def test_a_tree_has_the_targets_own_way_first() -> None:
    sequence = make_sequence(PROMPT, depth=3, nodes=15, temperature=0.3)
    draft_all(make_drafter(make_head()), sequence)
    node, path = -1, []
    for token in continuation(PROMPT, sequence.sampling, 3):
        places = zip(sequence.parents, sequence.drafted, strict=True)
        found = [at for at, place in enumerate(places) if place == (node, token)]
        if found:
            node = found[0]
            path.append(token)
    assert len(path) >= 2


@pytest.mark.parametrize(("trees", "nodes"), [("off", 15), ("auto", 4), ("on", 0)])
def test_trees(trees: str, nodes: int) -> None:
    """Only where they are wanted here, and there."""
    sequence = make_sequence(PROMPT, nodes=nodes)
    draft_all(make_drafter(make_head(), trees=trees), sequence)
    assert sequence.parents == []  # a chain


# -- when to stop --------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [0, 15])
def test_draft_confidence(nodes: int) -> None:
    """Below it no level is added; the candidates of the last one are sent all the same."""
    lengths = []
    for confidence in (0.0, 0.4, 1.0):
        sequence = make_sequence(PROMPT, nodes=nodes)
        head = make_head()
        draft_all(make_drafter(head, draft_confidence=confidence), sequence)
        lengths.append(len(head.batches))
        assert sequence.drafted
    assert lengths[0] == 4 > lengths[1] >= lengths[2] == 1


def test_ids_that_the_target_lacks_are_never_proposed() -> None:
    sequence = make_sequence(PROMPT, nodes=15, temperature=2.0)
    sequence.vocab_limit = 40
    draft_all(make_drafter(make_head()), sequence)
    assert max(sequence.drafted) < 40


def test_a_reduced_vocabulary_speaks_the_targets_ids() -> None:
    ids = np.array([3, 50, 51, 120, 200])
    head = ScriptedHead(DraftSettings(max_sequences=1, max_length=64), ids=ids)
    sequence = make_sequence(PROMPT, nodes=15)
    draft_all(make_drafter(head), sequence)
    assert set(sequence.drafted) <= set(ids.tolist())
    first = logits_of(state_after(PROMPT))
    masked = np.full(VOCAB, -np.inf, np.float32)
    masked[ids] = first[ids]
    assert sequence.drafted[0] == sample(masked, sequence.sampling, len(PROMPT), PROMPT)


class Broken(ScriptedHead):
    """From the second step on, its guesses or its logits are nothing."""

    field = "states"

    def forward(self, rows: Any) -> list[HeadOutput]:
        found = super().forward(rows)
        if len(self.batches) > 1:
            for output in found:
                getattr(output, self.field)[:] = np.nan
        return found


@pytest.mark.parametrize("field", ["states", "logits"])
def test_what_overflows_ends_the_proposal(field: str) -> None:
    head = Broken(DraftSettings(max_sequences=1, max_length=64))
    head.field = field
    sequence = make_sequence(PROMPT)
    draft_all(make_drafter(head), sequence)
    assert sequence.drafted == continuation(PROMPT, sequence.sampling, 1)


def test_states_that_overflow_when_fused_are_blanked() -> None:
    class Overflowing(ScriptedHead):
        def fuse(self, features: Features) -> Any:
            return np.full((len(features), self.hidden_size), np.inf, np.float32)

    head = Overflowing(DraftSettings(max_sequences=1, max_length=64))
    sequence = make_sequence(PROMPT)
    draft_all(make_drafter(head), sequence)
    assert all(np.isfinite(row.states).all() for batch in head.batches for row in batch)


# -- batches -------------------------------------------------------------------------------------


def test_sequences_in_any_phase_share_a_forward() -> None:
    head = make_head()
    drafter = make_drafter(head, prefill_chunk=4)
    texts = [PROMPT, [*PROMPT, 1, 2, 3, 4, 5], [*range(30)]]
    sequences = [make_sequence(text, slot=slot, nodes=15) for slot, text in enumerate(texts)]
    draft_all(drafter, *sequences)
    assert len(head.batches) == 4 + 8 - 1
    for sequence, text in zip(sequences, texts, strict=True):
        assert sequence.drafted[0] == continuation(text, sequence.sampling, 1)[0]
    assert head.torn == 0


def test_step_budget_serves_those_in_front_first() -> None:
    head = make_head()
    drafter = make_drafter(head, prefill_chunk=10, step_tokens=16)
    sequences = [make_sequence([*range(30)], slot=slot) for slot in range(3)]
    drafter.step(sequences)
    sizes: list[list[tuple[int, int]]] = [
        [(row.slot, len(row.tokens)) for row in batch] for batch in head.batches
    ]
    assert sizes == [[(0, 10), (1, 6)]]


def test_release_gives_the_slot_back() -> None:
    head = make_head()
    drafter, sequence = make_drafter(head), make_sequence(PROMPT, slot=2)
    drafter.step([sequence])
    drafter.release(2)
    assert head.released == [2]
    assert not drafter._guesses


def test_limits_are_the_runners() -> None:
    head = make_head(slots=3, length=100)
    drafter = make_drafter(head)
    assert (drafter.slots, drafter.max_length, drafter.vocab_size) == (3, 100, VOCAB)
    assert drafter.kv_blocks == head.kv_blocks
    rows: list[HeadRow] = []
    assert head.forward(rows) == []


# -- ahead of what is asked ----------------------------------------------------------------------


def ahead_of(drafter: EagleDrafter, *sequences: DraftSequence) -> None:
    while open_ := [one for one in sequences if one.ahead is None or one.ahead.frontier]:
        drafter.run_ahead(open_)


def say(sequence: DraftSequence, said: list[int], depth: int, nodes: int) -> bool:
    """A job with those tokens and their true states; whether it was foreseen."""
    base = len(sequence.tokens)
    text = [*sequence.tokens, *said]
    foreseen = sequence.foresee(base, said, depth, nodes)
    sequence.extend(base, said, depth, nodes, states_of(text, base - 1))
    if foreseen is not None:
        sequence.adopt(foreseen)
    return foreseen is not None


@pytest.mark.parametrize("nodes", [0, 15])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_was_foreseen_says_what_the_target_goes_on_with(
    temperature: float, nodes: int
) -> None:
    """A head that guesses states right foresees as well as it drafts."""
    head = make_head()
    drafter = make_drafter(head)
    sequence = make_sequence(PROMPT, depth=2, nodes=nodes, temperature=temperature)
    draft_all(drafter, sequence)
    ahead_of(drafter, sequence)
    said = continuation(PROMPT, sequence.sampling, 2)
    steps = len(head.batches)
    assert say(sequence, said, 2, nodes)
    assert len(head.batches) == steps
    assert sequence.complete
    tops = [
        token
        for token, parent in zip(sequence.drafted, sequence.parents or [-1], strict=False)
        if parent == -1
    ]
    assert continuation([*PROMPT, *said], sequence.sampling, 1)[0] in tops
    assert head.torn == 0


def test_true_states_replace_guesses_after_what_was_foreseen() -> None:
    """Those of a round that was foreseen are read ahead; of one that was not, as ever."""
    head = make_head()
    drafter, sequence = make_drafter(head), make_sequence(PROMPT, depth=2, nodes=15)
    draft_all(drafter, sequence)
    for _ in range(3):
        ahead_of(drafter, sequence)
        said = continuation(sequence.tokens, sequence.sampling, 2)
        assert say(sequence, said, 2, 15)
        assert sequence.cached < len(sequence.tokens)
    head.batches.clear()
    drafter.run_ahead([sequence])
    (row,) = head.batches[0]
    assert list(row.tokens) == sequence.tokens[-2:]
    assert sequence.cached == len(sequence.tokens)
    assert not say(sequence, [77, 78], 2, 15)
    draft_all(drafter, sequence)
    assert sequence.drafted[0] == continuation(sequence.tokens, sequence.sampling, 1)[0]
    assert head.torn == 0
    assert head.fused == len(sequence.tokens) - 1 + 1, "once each, and the last again to begin with"


def test_two_rounds_foreseen_at_once_are_read_together_when_there_was_no_time_between() -> None:
    head = make_head()
    drafter, sequence = make_drafter(head), make_sequence(PROMPT, depth=2, nodes=15)
    draft_all(drafter, sequence)
    ahead_of(drafter, sequence)
    assert say(sequence, continuation(PROMPT, sequence.sampling, 2), 2, 15)
    text = [*sequence.tokens, 99]
    assert not say(sequence, [99], 2, 15)
    draft_all(drafter, sequence)
    assert sequence.drafted[0] == continuation(text, sequence.sampling, 1)[0]
    assert head.torn == 0


def test_without_states_nothing_is_foreseen() -> None:
    head = make_head()
    sequence = DraftSequence(0, SamplingParams(seed=1), VOCAB)
    sequence.extend(0, PROMPT, 4, 15, states_of([1]))
    ahead_of(make_drafter(head), sequence)
    assert sequence.ahead is not None
    assert sequence.foresee(len(PROMPT), [1], 4, 15) is None


def test_sequences_run_ahead_together() -> None:
    head = make_head()
    drafter = make_drafter(head)
    sequences = [make_sequence([*PROMPT, slot], slot=slot, depth=2, nodes=15) for slot in range(3)]
    draft_all(drafter, *sequences)
    head.batches.clear()
    ahead_of(drafter, *sequences)
    assert len(head.batches[0]) == len(head.batches[1]) == 3
    for sequence in sequences:
        said = continuation(sequence.tokens, sequence.sampling, 1)
        assert say(sequence, said, 2, 15)
    assert head.torn == 0
