"""Drafting with a language model: rows, rollback by agreement, candidates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from starsd.drafters.ahead import ROW
from starsd.drafters.interface import DraftSequence
from starsd.drafters.lm import BRANCHES, LmDrafter
from starsd.engine.interface import Runner
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.ranking import rank
from starsd.sampling.sampler import sample
from starsd.settings.draft import DraftSettings
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


def follow(drafter: LmDrafter, prices: Sequence[float] = (), worth: float = 0.0) -> DraftSequence:
    """A proposal of six tokens at most, at these prices."""
    params = SamplingParams(seed=4, temperature=0.8)
    sequence = DraftSequence(0, params, VOCAB, prices=prices, worth=worth)
    sequence.extend(0, [7, 8, 9], depth=6)
    draft_all(drafter, sequence)
    return sequence


def confidences(text: list[int], params: SamplingParams, count: int) -> list[float]:
    """Of a chain as long: how likely all of it is, token by token."""
    sure, text, found = 1.0, list(text), []
    for _ in range(count):
        logits = HashModel(SETTINGS).logits(text)
        (token,), (own,) = rank(logits, params, len(text), text, SETTINGS.draft_candidates, 1)
        text.append(token)
        found.append(sure := sure * own)
    return found


def test_a_chain_ends_where_its_target_loses_by_more(runner: Runner) -> None:
    drafter = LmDrafter(runner, SETTINGS)
    free = follow(drafter)
    sure = confidences([7, 8, 9], free.sampling, 6)
    assert len(free.drafted) == 6
    assert free.expected == pytest.approx(sum(sure))
    assert sure[1] > sure[2] > sure[3]
    between = (sure[2] + sure[3]) / 2
    assert follow(drafter, prices=[between]).drafted == free.drafted[:3]  # it isn't verified
    assert follow(drafter, worth=between).drafted == free.drafted[:4]  # it's the last one
    assert follow(drafter, prices=[0.0, between]).drafted == free.drafted[:3], "of all from there"
    assert follow(drafter, prices=[0.0, 0.0, 1.0]).drafted == free.drafted[:2]
    assert not follow(drafter, prices=[1.0]).drafted


def test_a_chain_that_was_too_sure_is_believed_less(runner: Runner) -> None:
    drafter = LmDrafter(runner, SETTINGS)
    sequence = follow(drafter)
    before = len(sequence.tokens)
    sequence.extend(before, [(sequence.drafted[0] + 1) % VOCAB], depth=6)
    assert sequence.trust.value < 1
    right = follow(drafter)
    right.extend(before, [*right.drafted, 5], depth=6)
    assert right.trust.value > 1


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


# -- trees ---------------------------------------------------------------------------------------

TREES = DraftSettings(prefill_chunk=4, step_tokens=32, draft_candidates=0, trees="on")


def nodes_of(sequence: DraftSequence) -> set[tuple[int, ...]]:
    """The tokens down to each node."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(sequence.drafted, sequence.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return set(paths)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_tree_holds_the_models_own_samples_and_what_came_next_to_them(
    runner: Runner, temperature: float
) -> None:
    params = SamplingParams(seed=3, temperature=temperature)
    prefix = [5, 6, 7, 8, 9, 10]
    sequence = DraftSequence(slot=1, sampling=params, vocab_limit=VOCAB)
    sequence.extend(0, prefix, depth=3, max_nodes=15)
    steps = draft_all(LmDrafter(runner, TREES), sequence)
    nodes = nodes_of(sequence)
    assert steps <= 2 + 15
    assert len(nodes) == len(sequence.drafted) == 15
    assert max(len(path) for path in nodes) <= 3
    for path in nodes:
        text = prefix + list(path[:-1])
        logits = HashModel(SETTINGS).logits(text)
        best = rank(logits, params, len(text), text, 0, BRANCHES).tokens
        assert path[-1] in best
        assert {(*path[:-1], token) for token in best[: best.index(path[-1])]} <= nodes


def test_after_a_tree_the_prefix_goes_on_with_whatever_came_true(runner: Runner) -> None:
    """Nothing of the tree stays: the next row starts where the prefix ended."""
    params = SamplingParams(seed=1)
    sequence = DraftSequence(slot=0, sampling=params, vocab_limit=VOCAB)
    drafter = LmDrafter(runner, TREES)
    sequence.extend(0, [1, 2, 3], depth=3, max_nodes=9)
    draft_all(drafter, sequence)
    assert sequence.cached == 3
    sequence.extend(3, [*sequence.drafted[:1], 200], depth=4)
    draft_all(drafter, sequence)
    text = sequence.tokens
    assert (sequence.parents, sequence.drafted) == ([], continuation(text, params, 4))


def test_chains_where_no_more_nodes_than_depth_are_asked_or_trees_are_off(runner: Runner) -> None:
    for settings, nodes in ((TREES, 4), (SETTINGS, 15)):
        params = SamplingParams(seed=2)
        sequence = DraftSequence(slot=0, sampling=params, vocab_limit=VOCAB)
        sequence.extend(0, [1, 2, 3], depth=4, max_nodes=nodes)
        draft_all(LmDrafter(runner, settings), sequence)
        assert sequence.parents == []
        assert sequence.drafted == continuation([1, 2, 3], params, 4)


def test_impossible_sampling_ends_the_tree_not_the_batch(runner: Runner) -> None:
    hopeless = SamplingParams(seed=1, bias=dict.fromkeys(range(VOCAB), -float("inf")))
    sequences = [
        DraftSequence(slot=0, sampling=hopeless, vocab_limit=VOCAB),
        DraftSequence(slot=1, sampling=SamplingParams(seed=1), vocab_limit=VOCAB),
    ]
    for sequence in sequences:
        sequence.extend(0, [1, 2], depth=1, max_nodes=3)
    LmDrafter(runner, TREES).step(sequences)
    assert [len(sequence.drafted) for sequence in sequences] == [0, 3]
    assert all(sequence.complete for sequence in sequences)


def test_a_single_candidate_each_makes_a_chain(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1, top_k=1), vocab_limit=VOCAB)
    sequence.extend(0, [1, 2, 3], depth=4, max_nodes=9)
    draft_all(LmDrafter(runner, TREES), sequence)
    assert (len(sequence.drafted), sequence.parents) == (4, [])


# -- ahead of what is asked ----------------------------------------------------------------------


def ahead_of(drafter: LmDrafter, *sequences: DraftSequence) -> None:
    """As far as it goes."""
    while open_ := [one for one in sequences if one.ahead is None or one.ahead.frontier]:
        drafter.run_ahead(open_)


def drafted_after(text: list[int], params: SamplingParams, depth: int, nodes: int) -> list[int]:
    """By a hub that foresaw nothing."""
    sequence = DraftSequence(slot=0, sampling=params, vocab_limit=VOCAB)
    sequence.extend(0, text, depth, nodes)
    settings = TREES if nodes > depth else SETTINGS
    draft_all(LmDrafter(HashModel(SETTINGS).runner(), settings), sequence)
    return sequence.drafted


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("accepted", [0, 1, 4])
def test_what_was_foreseen_is_what_would_have_been_drafted(
    runner: Runner, temperature: float, accepted: int
) -> None:
    """Accepted whole, and its likely next token; or so many, and the second-best instead."""
    params = SamplingParams(seed=3, temperature=temperature)
    sequence = DraftSequence(slot=1, sampling=params, vocab_limit=VOCAB)
    drafter = LmDrafter(runner, DraftSettings(draft_candidates=0))
    prefix = [5, 6, 7, 8]
    sequence.extend(0, prefix, depth=4)
    draft_all(drafter, sequence)
    ahead_of(drafter, sequence)
    path = sequence.drafted[:accepted]
    logits = HashModel(SETTINGS).logits(prefix + path)
    best = rank(logits, params, len(prefix) + accepted, prefix + path, 0, 2).tokens
    said = [*path, best[accepted < 4]]
    foreseen = sequence.foresee(len(prefix), said, 4, 0)
    assert foreseen is not None
    sequence.extend(len(prefix), said, 4)
    sequence.adopt(foreseen)
    ready = len(sequence.drafted)
    assert ready
    draft_all(drafter, sequence)
    assert sequence.drafted == drafted_after(prefix + said, params, 4, 0)
    if accepted == 4:
        assert ready == 4, "answered without any model step"


def test_after_a_hit_it_runs_ahead_again_and_after_a_miss_it_drafts(runner: Runner) -> None:
    params = SamplingParams(seed=4)
    sequence = DraftSequence(slot=0, sampling=params, vocab_limit=VOCAB)
    drafter = LmDrafter(runner, SETTINGS)
    text = [1, 2, 3]
    sequence.extend(0, text, depth=3)
    draft_all(drafter, sequence)
    for _ in range(3):
        ahead_of(drafter, sequence)
        said = continuation(text, params, 4)
        foreseen = sequence.foresee(len(text), said, 3, 0)
        assert foreseen is not None
        sequence.extend(len(text), said, 3)
        sequence.adopt(foreseen)
        draft_all(drafter, sequence)
        text = text + said
        assert sequence.drafted == continuation(text, params, 3)
    ahead_of(drafter, sequence)
    assert sequence.foresee(len(text), [250, 251], 3, 0) is None
    sequence.extend(len(text), [250, 251], 3)
    assert sequence.ahead is None
    draft_all(drafter, sequence)
    assert sequence.drafted == continuation([*text, 250, 251], params, 3)


def test_a_prompt_is_run_ahead_of_before_anything_is_asked(runner: Runner) -> None:
    params = SamplingParams(seed=9, temperature=0.8)
    sequence = DraftSequence(slot=0, sampling=params, vocab_limit=VOCAB)
    drafter = LmDrafter(runner, DraftSettings(draft_candidates=0))
    sequence.extend(0, [1, 2, 3], depth=0)
    ahead_of(drafter, sequence)
    assert sequence.cached == 3
    said = continuation([1, 2, 3], params, 1)
    foreseen = sequence.foresee(3, said, 3, 0)
    assert foreseen is not None
    assert foreseen.tokens == continuation([1, 2, 3, *said], params, 3)


def test_foreseen_trees_hold_the_nodes_that_would_have_been_drafted(runner: Runner) -> None:
    params = SamplingParams(seed=3, temperature=0.5)
    sequence = DraftSequence(slot=1, sampling=params, vocab_limit=VOCAB)
    drafter = LmDrafter(runner, TREES)
    prefix = [5, 6, 7, 8]
    sequence.extend(0, prefix, depth=2, max_nodes=6)
    draft_all(drafter, sequence)
    ahead_of(drafter, sequence)
    said = continuation(prefix, params, 1)
    foreseen = sequence.foresee(len(prefix), said, 2, 6)
    assert foreseen is not None
    assert set(foreseen.tokens) == set(drafted_after(prefix + said, params, 2, 6))
    assert not foreseen.exact


def test_what_contradicts_the_prefix_was_not_foreseen(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=VOCAB)
    drafter = LmDrafter(runner, SETTINGS)
    sequence.extend(0, [1, 2, 3], depth=2)
    draft_all(drafter, sequence)
    ahead_of(drafter, sequence)
    said = sequence.drafted[:1]
    assert sequence.foresee(2, [3, *said], 2, 0)
    assert sequence.foresee(2, [9, *said], 2, 0) is None
    assert sequence.foresee(2, [], 2, 0) is None
    assert sequence.foresee(3, [], 2, 0) is None


def test_rows_ahead_take_the_unread_prefix_along_and_fit(runner: Runner) -> None:
    sequence = DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=VOCAB)
    drafter = LmDrafter(runner, DraftSettings(max_depth=64))
    sequence.extend(0, [*range(10)], depth=30)
    draft_all(drafter, sequence)
    sequence.cached = 2
    assert drafter.run_ahead([sequence]) == ROW
    assert sequence.ahead is not None
    assert sequence.ahead.spent == ROW
    assert sequence.cached == 10


def test_impossible_sampling_foresees_nothing(runner: Runner) -> None:
    hopeless = SamplingParams(seed=1, bias=dict.fromkeys(range(VOCAB), -float("inf")))
    sequence = DraftSequence(slot=0, sampling=hopeless, vocab_limit=VOCAB)
    sequence.extend(0, [1, 2], depth=0)
    LmDrafter(runner, SETTINGS).run_ahead([sequence])
    assert sequence.ahead is not None
    assert not sequence.ahead.frontier
