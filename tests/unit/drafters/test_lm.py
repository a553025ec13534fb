"""Drafting with a language model: rows, rollback by agreement, candidates."""

from __future__ import annotations

import pytest

from starsd.drafters.interface import DraftSequence
from starsd.drafters.lm import LmDrafter
from starsd.engine.interface import Runner
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample
from starsd.settings import DraftSettings
from tests.scripted import VOCAB, HashModel

SETTINGS = DraftSettings(max_sequences=4, max_length=64, prefill_chunk=4, step_tokens=16)


@pytest.fixture
def runner() -> Runner:
    return HashModel(SETTINGS).runner()


def draft_all(drafter: LmDrafter, sequence: DraftSequence) -> int:
    """Steps until the proposal is complete."""
    steps = 0
    while not sequence.complete:
        drafter.step([sequence])
        steps += 1
    return steps


def continuation(tokens: list[int], params: SamplingParams, count: int) -> list[int]:
    """What the model itself samples next."""
    model, text = HashModel(SETTINGS), list(tokens)
    for _ in range(count):
        text.append(sample(model.logits(text), params, len(text), text))
    return text[len(tokens) :]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_proposes_the_models_own_samples(runner: Runner, temperature: float) -> None:
    params = SamplingParams(seed=3, temperature=temperature)
    sequence = DraftSequence(slot=1, sampling=params, vocab_limit=VOCAB)
    sequence.extend(0, [5, 6, 7, 8, 9, 10], depth=4)
    drafter = LmDrafter(runner, DraftSettings(draft_candidates=0, prefill_chunk=4))
    assert draft_all(drafter, sequence) == 5
    assert sequence.drafted == continuation([5, 6, 7, 8, 9, 10], params, 4)


def test_accepted_tokens_are_not_computed_again(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=VOCAB)
    drafter = LmDrafter(runner, SETTINGS)
    sequence.extend(0, [1, 2, 3], depth=4)
    draft_all(drafter, sequence)
    sequence.extend(3, [*sequence.drafted[:2], 200], depth=1)
    assert sequence.cached == 5
    drafter.step([sequence])
    assert sequence.complete


def test_resent_round_drafts_again_from_the_last_token(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=VOCAB)
    drafter = LmDrafter(runner, SETTINGS)
    sequence.extend(0, [1, 2, 3], depth=2)
    draft_all(drafter, sequence)
    first = list(sequence.drafted)
    sequence.extend(3, [], depth=2)
    draft_all(drafter, sequence)
    assert sequence.drafted == first


def test_prefix_job_ends_idle_without_proposing(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=VOCAB)
    sequence.extend(0, list(range(10)), depth=0)
    drafter = LmDrafter(runner, SETTINGS)
    steps = 0
    while not sequence.idle:
        drafter.step([sequence])
        steps += 1
    assert steps == 3
    assert sequence.drafted == []


def test_step_budget_serves_those_in_front_first(runner: Runner) -> None:
    sequences = [
        DraftSequence(slot=slot, sampling=SamplingParams(seed=1), vocab_limit=VOCAB)
        for slot in range(4)
    ]
    for sequence in sequences:
        sequence.extend(0, list(range(12)), depth=0)
    LmDrafter(runner, DraftSettings(prefill_chunk=12, step_tokens=16)).step(sequences)
    assert [sequence.cached for sequence in sequences] == [12, 4, 0, 0]


def test_never_proposes_what_the_target_lacks(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=8)
    sequence.extend(0, [1, 2, 3], depth=12)
    draft_all(LmDrafter(runner, SETTINGS), sequence)
    assert max(sequence.drafted) < 8


def test_candidates_limit_what_is_evaluated(runner: Runner) -> None:
    params = SamplingParams(seed=5, temperature=2.0)
    drafts = []
    for candidates in (0, 2):
        sequence = DraftSequence(slot=0, sampling=params, vocab_limit=VOCAB)
        sequence.extend(0, [1, 2, 3], depth=8)
        draft_all(LmDrafter(runner, DraftSettings(draft_candidates=candidates)), sequence)
        drafts.append(sequence.drafted)
    assert drafts[0] == continuation([1, 2, 3], params, 8)
    assert drafts[0] != drafts[1]


def test_impossible_sampling_ends_the_proposal_not_the_batch(runner: Runner) -> None:
    hopeless = SamplingParams(seed=1, bias=dict.fromkeys(range(VOCAB), -float("inf")))
    sequences = [
        DraftSequence(slot=0, sampling=hopeless, vocab_limit=VOCAB),
        DraftSequence(slot=1, sampling=SamplingParams(seed=1), vocab_limit=VOCAB),
    ]
    for sequence in sequences:
        sequence.extend(0, [1, 2], depth=1)
    LmDrafter(runner, SETTINGS).step(sequences)
    assert [len(sequence.drafted) for sequence in sequences] == [0, 1]
    assert all(sequence.complete for sequence in sequences)
