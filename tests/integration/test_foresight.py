"""Over a real Redis a hub tells what it foresees, and targets verify it: the text stays theirs."""

from __future__ import annotations

import pytest

from tests.livestar import SCRIPTED_TARGET, LiveStar, eventually, questions, texts, value

STEP_S = 0.4
"""Of a target: the scripted hub runs ahead in Python, and only where lulls are long for it."""


def taken(star: LiveStar) -> float:
    """Rounds of both targets for which nobody was asked."""
    name = "starsd:foreseen_rounds_total"
    return sum(value(target, name, result="taken") for target in star.targets)


def test_what_a_hub_foresaw_is_verified_and_the_text_is_that_of_plain_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCRIPTED_WRONG", "0.05")
    target = {**SCRIPTED_TARGET, "run_ahead": "on", "ngram": 0, "wait_budget": 10}
    asked = questions(4, max_tokens=30)
    with LiveStar(step_s=STEP_S, target=target) as star:
        star.start_all()
        star.wait_whole()
        before = taken(star)
        heard = star.through(asked)
        assert texts(heard) == texts(star.plain(asked))
        eventually(lambda: taken(star) > before, "foreseen rounds are counted")
    assert sum(one.starsd["accepted"] for one in heard) > 4
