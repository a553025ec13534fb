"""What a replay says is what a hub and a target would do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from starsd.bench.draft.drafts import Draft
from starsd.bench.draft.replay import Place, Round, replay
from starsd.bench.draft.result import hits
from starsd.bench.draft.setup import Shape
from starsd.bench.draft.texts import Text, answer
from starsd.drafters.eagle import EagleDrafter
from starsd.engine.interface import Logits
from starsd.sampling.sampler import sample
from starsd.settings.target import TargetSettings
from tests.scripted import EOS, DriftModel, HashModel
from tests.scripted_head import ScriptedHead, make_head
from tests.unit.bench_draft.support import (
    draft_settings,
    drafts_of,
    head_draft,
    lm_draft,
    questions,
    texts_of,
)

CHAIN, TREE = Shape(4, 0), Shape(4, 12)


def rounds_of(draft: Draft, texts: Sequence[Text], shape: Shape, context: int = 256) -> list[Round]:
    return list(replay(drafts_of(draft, context=context), draft, texts, shape))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_chains_of_a_head_that_knows_all_are_right(temperature: float) -> None:
    head = make_head()
    rounds = rounds_of(head_draft(head), texts_of(temperature), CHAIN)
    assert sorted(len(one.path) for one in rounds) == [3] * 3 + [4] * 15
    assert all(one.tokens == one.steps + 1 == len(one.drafted) + 1 for one in rounds)
    assert all(one.parents is None for one in rounds)
    assert head.torn == 0
    assert head.held == [[]] * 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trees_are_walked_where_the_target_went(temperature: float) -> None:
    head, (text, *_) = make_head(wrong=0.4), texts_of(temperature)
    at = 4
    for one in rounds_of(head_draft(head), [text], TREE):
        assert one.parents is not None
        assert [one.drafted[node] for node in one.path] == text.tokens[at : at + len(one.path)]
        ends = (one.path or [-1])[-1]
        below = [t for t, p in zip(one.drafted, one.parents, strict=True) if p == ends]
        assert text.tokens[at + len(one.path)] not in below
        at += one.tokens
    assert len(text.tokens) - 1 <= at <= len(text.tokens)
    assert head.torn == 0


class SecondModel(HashModel):
    """Takes the likeliest token for the second, and the other way round."""

    def logits(self, history: Sequence[int]) -> Logits:
        logits = super().logits(history)
        second, first = np.argsort(logits)[-2:]
        logits[[first, second]] = logits[[second, first]]
        return logits


def test_second_best_guesses_are_right_in_trees_only() -> None:
    runner = HashModel(TargetSettings(max_sequences=4, max_length=256)).runner()
    texts = answer(runner, questions(), (EOS,), tapped=False)
    chain, tree = (rounds_of(lm_draft(SecondModel), texts, shape) for shape in (CHAIN, TREE))
    assert {one.tokens for one in chain} == {1}
    assert sum(one.tokens for one in tree) > 1.5 * len(tree)
    assert {hit.rank for hit in hits(tree) if hit.hits} == {2}


def test_a_head_reads_no_more_of_a_prompt_than_its_context() -> None:
    head = make_head()
    rounds_of(head_draft(head), texts_of()[1:2], CHAIN, context=10)
    assert len(head.batches[0][0].tokens) == 10
    assert head.fused == 10 + 5 * 5  # five rounds follow the first


def test_heads_of_other_layers_each_get_their_own() -> None:
    head, other = make_head(), make_head()
    other.layers = (2, 3)
    both = drafts_of(head_draft(head), head_draft(other))
    assert both.taps == [1, 2, 3]
    texts = texts_of(taps=both.taps)
    for draft in both.all:
        assert {len(one.path) for one in replay(both, draft, texts, CHAIN)} <= {3, 4}
    assert (head.torn, other.torn) == (0, 0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_chains_of_a_model_against_its_own_samples(temperature: float) -> None:
    """Each round by the definition: the drafter's sample after the prefix, while right."""
    runner = HashModel(TargetSettings(max_sequences=4, max_length=256)).runner()
    (text, *_) = answer(runner, questions(temperature), (EOS,), tapped=False)
    rounds = rounds_of(lm_draft(DriftModel), [text], CHAIN)
    model, sampling = DriftModel(TargetSettings()), text.question.sampling
    at, wanted = 4, []
    while at < len(text.tokens) - 1:
        right = 0
        while right < min(4, 32 - at):
            before = text.tokens[: at + right]
            if sample(model.logits(before), sampling, len(before), ()) != text.tokens[at + right]:
                break
            right += 1
        wanted.append(right)
        at += right + 1
    assert [len(one.path) for one in rounds] == wanted
    assert len(set(wanted)) > 1
    assert all(one.steps == len(one.drafted) for one in rounds)


def test_ngrams() -> None:
    question = questions()[0]
    text = Text(question, [*question.ids, 9, 1, 2, 3, 9, 1, 2, 5, 6])
    rounds = rounds_of(Draft("ngram"), [text], CHAIN)
    assert [(list(one.drafted), list(one.path), one.tokens, one.steps) for one in rounds] == [
        ([], [], 1, 0),
        ([], [], 1, 0),
        ([3, 9], [0, 1], 3, 0),
        ([2, 3, 9, 1], [0], 2, 0),
        ([], [], 1, 0),
    ]


def test_nothing_is_proposed_where_only_one_token_may_follow() -> None:
    texts = texts_of(count=2)
    assert all(Place(text).over for text in texts)
    assert rounds_of(head_draft(), texts, CHAIN) == []
    (first, *_) = rounds_of(head_draft(), texts_of(count=3), CHAIN)
    assert (len(first.drafted), first.tokens) == (1, 2)


def test_a_draft_with_less_memory_takes_fewer_texts_at_once() -> None:
    small = draft_settings(kv_memory=256 * 1024)
    head = ScriptedHead(small)
    draft = Draft("head", EagleDrafter(head, small), head.layers)
    assert head.kv_blocks == 4
    assert sum(one.tokens for one in rounds_of(draft, texts_of(), TREE)) >= 3 * 28
    assert {len(batch) for batch in head.batches} <= {1, 2}
