"""Dialogues of a target with itself, on a scripted target that says what a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import training.dialogues
import training.shards
from starsd.bench.prompts import load_prompts
from starsd.engine.interface import Logits, Row
from training.dialogues import (
    ANSWER_TOKENS,
    LOOKED_FOR,
    MIN_PASSAGE,
    TEMPERATURES,
    USER_TOKENS,
    EngineSpeaker,
    Speaker,
    collect,
)
from training.frame import Frame
from training.shards import Dialogue, Shards
from training.starters import STARTERS, TASKS

OPENING, ANSWER, REPLY, EOS, WORD = (10, 11), (12, 13), (14, 15), 1, 20
FRAME = Frame(OPENING, ANSWER, REPLY)
VOCAB = 64


class Script:
    """Every turn is ``words`` words long, then ends."""

    slots, vocab_size, max_length = 3, VOCAB, 2000

    def __init__(self, words: int) -> None:
        self.words = words
        self.texts: dict[int, list[int]] = {}

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        return [self._logits(row) for row in rows]

    def _logits(self, row: Row) -> Logits:
        text = self.texts.get(row.slot, [])[: row.start] + list(row.tokens)
        self.texts[row.slot] = text
        said = text[::-1].index(next(t for t in text[::-1] if t != WORD and t < 20))
        logits = np.zeros((row.want, VOCAB), dtype=np.float32)
        if row.want:
            logits[-1, EOS if said >= self.words else WORD] = 1000.0
        return logits


class Varied(Script):
    """Says words that do not loop."""

    def _logits(self, row: Row) -> Logits:
        logits = super()._logits(row)
        said = len(self.texts[row.slot]) - 1
        if row.want and logits[-1, WORD]:
            logits[-1, WORD], logits[-1, Random(said).randrange(20, 60)] = 0, 1000.0
        return logits


def speaker(words: int, script: type[Script] = Script, **options: object) -> Speaker:
    of: Any = script(words)
    return EngineSpeaker(of, FRAME, frozenset({EOS}), seed=3, **options)


def run(of: Speaker, count: int) -> list[Dialogue]:
    found: list[Dialogue] = []
    while len(found) < count:
        found += of.step()
    return found


def test_both_sides_speak_in_turn_and_only_answers_are_marked() -> None:
    turn = [WORD] * 6
    for one in run(speaker(6), 12):
        tokens = one.tokens.tolist()
        first = [*OPENING, *turn, EOS, *ANSWER, *turn, EOS]
        assert tokens[: len(first)] == first
        marks = [False] * 11 + [True] * 7
        assert one.own.tolist()[: len(first)] == marks
        rest = tokens[len(first) :]
        more = [*REPLY, *turn, EOS, *ANSWER, *turn, EOS]
        assert rest == more * (len(rest) // len(more))
        assert len({tuple(part) for part in (one.tokens, one.own)}) == 2


def test_numbers_are_an_endless_series_that_can_go_on() -> None:
    first = run(speaker(6), 30)
    again = {one.number: one for one in run(speaker(6, first_number=10), 25)}
    assert sorted(one.number for one in first)[:20] == list(range(20))
    for one in first:
        if (same := again.get(one.number)) is not None:
            assert same.temperature == one.temperature
            np.testing.assert_array_equal(same.tokens, one.tokens)
    assert min(again) == 10


def test_given_users_are_answered_first_turn_by_turn() -> None:
    chats = [[[30, 31], [32]], [[33]]]
    found = {one.number: one for one in run(speaker(6, chats=chats), 12)}
    answer = [*ANSWER, *[WORD] * 6, EOS]
    assert found[0].tokens.tolist() == [*OPENING, 30, 31, *answer, *REPLY, 32, *answer]
    assert found[1].tokens.tolist()[:12] == [*OPENING, 33, *answer]
    assert 30 not in np.concatenate([found[number].tokens for number in found if number > 1])


def test_half_of_users_begin_with_a_starter() -> None:
    found = run(speaker(6, starters=[[40], [41, 42]]), 60)
    begun = [one for one in found if one.tokens[2] in (40, 41)]
    assert 15 < len(begun) < 45
    assert {int(one.tokens[2]) for one in begun} == {40, 41}


def test_some_users_set_a_task_upon_what_was_answered_before() -> None:
    found = run(speaker(MIN_PASSAGE, Varied, tasks=[[7], [8]]), 60)
    tasked = [one for one in found if one.tokens[2] in (7, 8)]
    assert 5 < len(tasked) < 30
    for one in tasked:
        passage = one.tokens[3 : 3 + MIN_PASSAGE]
        assert (passage >= 20).all()
        assert not one.own[: 3 + MIN_PASSAGE].any()
        assert one.tokens[3 + MIN_PASSAGE :][:2].tolist() == list(ANSWER)


def test_what_loops_is_no_passage() -> None:
    found = run(speaker(MIN_PASSAGE, tasks=[[7]]), 60)
    assert all(one.tokens[2] != 7 for one in found)


def test_most_others_say_what_was_composed() -> None:
    def compose(chance: Random) -> list[list[int]]:
        return [[40, chance.randrange(50, 60)], [41]]

    found = run(speaker(6, compose=compose, starters=[[42]]), 60)
    composed = [one.tokens.tolist() for one in found if one.tokens[2] == 40]
    assert 30 < len(composed) < 55
    assert len({one[3] for one in composed}) > 5
    assert all(one[-8:] == [41, *ANSWER, *[WORD] * 6, EOS][-8:] for one in composed)
    assert any(one.tokens[2] == 42 for one in found)


def test_an_answer_that_loops_ends_there() -> None:
    (looping,) = run(speaker(1000, chats=[[[30, 31], [32]]]), 1)
    assert int(looping.own.sum()) == LOOKED_FOR
    assert 32 not in looping.tokens


def test_starters_are_none_of_the_benchmarks_prompts() -> None:
    prompts = [turn.lower() for prompt in load_prompts() for turn in prompt.turns]
    for words in (*STARTERS, *TASKS):
        if len(words.split()) > 5:  # fewer are anybody's
            assert not any(prompt.startswith(words.lower()) for prompt in prompts)


def test_endless_answers_are_cut_and_raving_or_silent_users_dropped() -> None:
    endless = run(speaker(1000, Varied, chats=[[[30, 31]]] * 3), 3)
    assert [int(one.own.sum()) for one in endless] == [ANSWER_TOKENS] * 3
    raving, silent = speaker(1000), speaker(2)
    for _ in range(2 * USER_TOKENS):
        assert raving.step() == []
        assert silent.step() == []


def test_temperatures_are_mixed() -> None:
    assert {one.temperature for one in run(speaker(6), 60)} == set(TEMPERATURES)


def test_collecting_stops_at_the_budget_and_keeps_all(tmp_path: Path) -> None:
    shards = Shards(tmp_path, VOCAB)
    collect(speaker(6), shards, 500)
    assert 500 <= shards.tokens < 600
    again = Shards(tmp_path, VOCAB)
    assert again.tokens == shards.tokens

    def stop(held: int) -> None:
        if held > 700:
            raise SystemExit

    with pytest.raises(SystemExit):
        collect(speaker(6, first_number=again.next_number), again, 10_000, stop)
    kept = Shards(tmp_path, VOCAB)
    assert kept.tokens == again.tokens > 700
    numbers = [one.number for one in kept]
    assert len(set(numbers)) == len(numbers)


def test_what_was_said_two_minutes_ago_outlives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.dialogues, "SAVE_S", 0.0)
    on_disk: list[int] = []

    def look(held: int) -> None:
        on_disk.append(Shards(tmp_path, VOCAB).tokens)

    shards = Shards(tmp_path, VOCAB)
    collect(speaker(6), shards, 500, look)
    assert shards.tokens > on_disk[-1] > on_disk[len(on_disk) // 2] > 0
    assert [path.name for path in shards.paths] == ["shard-00000.npz"]


def test_shards_are_bounded_and_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.shards, "SHARD_TOKENS", 100)
    one = Dialogue(0, 0.0, np.arange(30, dtype=np.int32), np.ones(30, dtype=np.bool_))
    shards = Shards(tmp_path, VOCAB)
    for _ in range(9):
        shards.add(one)
    shards.flush()
    sizes = [len(np.load(path)["tokens"]) for path in shards.paths]
    assert sizes == [120, 120, 30]
    shards.paths[0].unlink()
    again = Shards(tmp_path, VOCAB)
    again.add(one)
    again.flush()
    assert [path.name[-6:-4] for path in again.paths] == ["01", "02", "03"]
    assert Shards(tmp_path, VOCAB).tokens == again.tokens == 180


@pytest.mark.parametrize("vocab", [1000, 100_000])
def test_shards_give_back_what_they_took(tmp_path: Path, vocab: int) -> None:
    shards = Shards(tmp_path, vocab)
    chance = np.random.default_rng(0)
    given = []
    for number in range(40):
        size = int(chance.integers(1, 300))
        tokens = chance.integers(0, vocab, size).astype(np.int32)
        given.append(Dialogue(number, 0.5, tokens, chance.random(size) < 0.5))
        shards.add(given[-1])
        if number % 9 == 8:
            shards.flush()
    shards.flush()
    found = list(Shards(tmp_path, vocab))
    assert [one.number for one in found] == list(range(40))
    for one, other in zip(given, found, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.own, other.own)
    assert not list(tmp_path.glob("*.part"))
