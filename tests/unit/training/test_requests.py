"""What users are made to say."""

from __future__ import annotations

import random

import pytest

from starsd.bench.prompts import load_prompts
from training.requests import FOLLOW_UPS, FORMS, NUMBERS, WORDS, request


def requests(count: int) -> list[list[str]]:
    chance = random.Random(1)
    return [request(chance) for _ in range(count)]


def test_every_slot_is_filled_and_hardly_any_comes_twice() -> None:
    found = requests(2000)
    assert not any("{" in turn and "}" in turn for turns in found for turn in turns)
    assert len({turns[0] for turns in found}) > 1700
    assert {len(turns) for turns in found} == {1, 2}


def test_a_word_is_not_compared_with_itself() -> None:
    found = [turns[0] for turns in requests(5000) if turns[0].startswith("Compare")]
    assert found
    assert all(first != second for first, second in (one[8:-1].split(" with ") for one in found))


@pytest.mark.parametrize("form", [*FOLLOW_UPS, *(form for kind in FORMS.values() for form in kind)])
def test_forms_have_known_slots_and_are_no_prompts_of_the_benchmark(form: str) -> None:
    form.format_map({**WORDS, **NUMBERS})
    prompts = [turn.lower() for prompt in load_prompts() for turn in prompt.turns]
    assert form.lower() not in prompts


def test_the_same_chance_asks_the_same() -> None:
    assert requests(20) == requests(20)
