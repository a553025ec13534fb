"""Replayed models in a target's and a hub's hands."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from starsd.bench.scale.replay import (
    DraftRunner,
    ReplayDraft,
    ReplayRunner,
    ReplayTarget,
    ReplayTokenizer,
    TargetRunner,
    sureness,
)
from starsd.bench.scale.world import Text, World, write
from starsd.drafters.interface import DraftSequence
from starsd.drafters.lm import LmDrafter
from starsd.engine.interface import Row
from starsd.engine.loading import load_model
from starsd.errors import EngineError, RequestError
from starsd.plan.acceptance import CHOICES
from starsd.plan.costs import Costs, straight
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.verification import verify
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.unit.bench_scale.support import EOS, make_world

GREEDY = SamplingParams(seed=0, temperature=0.0)
FAST = Costs(straight(0, 0), straight(0, 0), straight(0, 0))


def target(world: World | None = None) -> TargetRunner:
    made = world or make_world(costs=FAST)
    return TargetRunner(made, TargetSettings(max_length=256, max_sequences=4))


def draft(world: World | None = None) -> DraftRunner:
    made = world or make_world(costs=FAST)
    return DraftRunner(made, DraftSettings(max_length=256, max_sequences=4))


def drafted(text: Text, length: int, depth: int) -> list[int]:
    """A chain after so many tokens of a text, by a hub's own drafter."""
    drafter = LmDrafter(draft(), DraftSettings())
    sequence = DraftSequence(0, GREEDY, 500)
    sequence.extend(0, text.tokens[:length], depth)
    while not sequence.idle:
        drafter.step([sequence])
    return sequence.drafted


def test_a_target_says_the_recorded_text_whatever_is_proposed() -> None:
    runner, text = target(), make_world().texts[2]
    said, known = list[int](), list(text.prompt)
    cached = 0
    for number in range(60):
        # two right tokens, one of them, or none
        right = text.tokens[len(known) : len(known) + number % 3]
        proposal = [*right, 499, 7]
        tokens = [*known[cached:], *proposal]
        (logits,) = runner.forward([Row(1, tokens, cached, want=1 + len(proposal))])
        new = verify(logits, proposal, GREEDY, len(known), known)
        said += new
        cached, known = len(known), known + new
        if EOS in said:
            break
    assert tuple(said[: len(text.answer)]) == text.answer


def test_rows_of_many_texts_at_once() -> None:
    runner, world = target(), make_world()
    rows = [Row(slot, list(world.texts[slot].prompt), 0) for slot in range(4)]
    for _ in range(2):  # the second time in rows that were written before
        found = [int(logits[-1].argmax()) for logits in runner.forward(rows)]
        assert found == [text.answer[0] for text in world.texts[:4]]
        rows = rows[::-1]
        found = [int(logits[-1].argmax()) for logits in runner.forward(rows)]
        assert found == [text.answer[0] for text in world.texts[3::-1]]
        rows = rows[::-1]


def test_a_draft_is_right_where_the_recorded_one_was() -> None:
    text = make_world().texts[0]
    for place in range(1, len(text.answer) - 6):
        length = len(text.prompt) + place
        found = drafted(text, length, depth=5)
        known = text.ranks[place : place + 5]
        accepted = next((i for i, rank in enumerate(known) if rank), 5)
        expected = text.tokens[length : length + 5]
        assert found[:accepted] == expected[:accepted]
        assert accepted == 5 or found[accepted] != expected[accepted]


def test_a_draft_knows_the_right_token_by_its_rank() -> None:
    runner, text = draft(), make_world().texts[0]
    for place in range(1, len(text.answer)):
        length = len(text.prompt) + place
        (logits,) = runner.forward([Row(0, text.tokens[:length], 0)])
        best = [int(token) for token in np.argsort(-logits[0])[:CHOICES]]
        rank = text.ranks[place]
        assert (best.index(text.tokens[length]) if rank < CHOICES else CHOICES) == rank


def test_a_tree_is_read_along_its_paths() -> None:
    runner, text = draft(), make_world().texts[0]
    place = text.ranks.index(0, 1)
    known = text.tokens[: len(text.prompt) + place]
    after = text.tokens[len(known)]
    runner.forward([Row(0, known, 0, want=0)])
    row = Row(0, [499, after], len(known), want=2, parents=[-1, -1])
    (logits,) = runner.forward([row])
    expected = text.tokens[len(known) + 1]
    rank = text.ranks[place + 1]
    assert (int(np.argsort(-logits[1])[rank]) if rank < CHOICES else expected) == expected


def test_a_draft_is_as_sure_as_it_was_right() -> None:
    world = make_world(texts=40)
    found = np.exp(np.array(sureness(world)) - 100)
    ranks = [rank for text in world.texts for rank in text.ranks[1:]]
    assert found[0] == pytest.approx(ranks.count(0) / len(ranks), abs=0.02)
    assert list(found) == sorted(found, reverse=True)


@pytest.mark.parametrize("make", [target, draft])
def test_steps_take_as_long_as_recorded(make: Callable[[World], ReplayRunner]) -> None:
    costs = Costs(straight(0, 0), straight(0.03, 1.0), straight(0.01, 1.0))
    runner = make(make_world(costs=costs, verify_factors=(1.0,)))
    begin = time.perf_counter()
    runner.forward([Row(0, [1, 3, 4], 0), Row(1, [1, 4, 4], 0)])
    assert time.perf_counter() - begin >= 0.0599  # two sequences of 30, six rows of 10 ms


def test_a_gap_before_a_row_is_an_error() -> None:
    with pytest.raises(EngineError, match="holds 0, the row starts at 5"):
        target().forward([Row(0, [1], 5)])
    with pytest.raises(EngineError, match="no hidden states"):
        target().tap((1,))


def test_slots_are_copied_compacted_and_released() -> None:
    runner, text = target(), make_world().texts[1]
    runner.forward([Row(0, [*text.prompt, text.answer[0], 9], 0)])
    runner.compact(0, 3, [0])
    runner.copy(0, 1, 4)
    (logits,) = runner.forward([Row(1, [text.answer[1]], 4)])
    assert logits[-1].argmax() == text.answer[2]
    runner.release(1, 4)
    (logits,) = runner.forward([Row(1, [text.answer[1]], 4)])
    assert logits[-1].argmax() == text.answer[2]
    runner.release(0)
    with pytest.raises(EngineError):
        runner.forward([Row(0, [1], 4)])


def test_what_nobody_recorded_ends_at_once() -> None:
    (logits,) = target().forward([Row(0, [77, 78], 0)])
    assert logits[-1].argmax() == EOS


def test_as_services_load_them(tmp_path: Path) -> None:
    world = make_world()
    write(world, tmp_path / "world")
    given: dict[str, Any] = {"model": str(tmp_path / "world"), "max_sequences": 3}
    kind = "starsd.bench.scale.replay:ReplayTarget"
    model = load_model(TargetSettings(scripted=kind, **given))
    assert isinstance(model, ReplayTarget)
    assert (model.runner().slots, model.vocabulary()) == (3, world.vocabulary)
    other = load_model(DraftSettings(scripted=kind.replace("Target", "Draft"), **given))
    assert isinstance(other, ReplayDraft)
    assert isinstance(other.runner(), DraftRunner)


def test_a_message_is_the_number_of_a_text() -> None:
    tokenizer = ReplayTokenizer(make_world())
    assert tokenizer.encode_chat([{"role": "user", "content": "4"}]) == [1, 7, 4]
    assert tokenizer.eos_ids == (EOS,)
    stream = tokenizer.text_stream()
    assert (stream.push(12), stream.flush()) == ("12 ", "")
    assert tokenizer.encode(tokenizer.decode([12, 3])) == [12, 3]
    assert tokenizer.token_bytes(12) == b"12 "
    for wrong in ("12", "x", "-1"):
        with pytest.raises(RequestError, match="want one of 12"):
            tokenizer.encode_chat([{"role": "user", "content": wrong}])
