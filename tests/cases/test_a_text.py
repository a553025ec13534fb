"""Text assembly in streams (rows A of the cases): the same text however tokens came."""

from __future__ import annotations

import pytest

from tests.cases.star import Cases, message_of, reasons_of, text_of


def both(cases: Cases, content: str, **fields: object) -> str:
    """The text, which is the same whole and streamed."""
    whole = message_of(cases.chat(content, **fields))
    frames = cases.frames(content, **fields)
    assert text_of(frames) == whole
    return whole


def test_a1_no_part_of_a_stop_string_is_streamed(cases: Cases) -> None:
    frames = cases.frames("first END_OF_REC second", stop=["END_OF_REC"])
    assert text_of(frames) == "first "
    assert all("E" not in str(frame["choices"]) for frame in frames)
    assert reasons_of(frames)[-1] == "stop"


def test_a3_the_stop_is_never_part_of_the_text(cases: Cases) -> None:
    assert both(cases, "1 2 3 4 5 6 7 8 9", stop=["5"]) == "1 2 3 4 "
    assert both(cases, "1 2 3 4 5 6 7 8 9", stop="5") == "1 2 3 4 "


@pytest.mark.parametrize("stop", ["x" * 40, "the end that never quite comes to pass!!"])
def test_a4_no_empty_chunks_and_held_text_comes_at_the_end(cases: Cases, stop: str) -> None:
    content = "this is the end that never quite comes" + "x" * 39
    frames = cases.frames(content, stop=[stop])
    assert text_of(frames) == content
    for frame in frames:
        (choice,) = frame["choices"]
        delta = choice["delta"]
        assert delta.get("content") or "role" in delta or choice["finish_reason"]


def test_a5_stop_is_matched_in_all_text_thinking_included(cases: Cases) -> None:
    """Nothing is split out of the text, so there is nothing that a stop would not see."""
    assert both(cases, "<think>so, done.</think>All done.", stop=["done"]) == "<think>so, "


@pytest.mark.parametrize("text", ["😀👩‍👩‍👧", "漢字かな", "naïve 😀 end", "\u2028x\u2029"])
def test_a6_characters_of_several_tokens_come_whole(cases: Cases, text: str) -> None:
    frames = cases.frames(text)
    assert text_of(frames) == text
    assert all("\ufffd" not in str(frame) for frame in frames)


def test_a7_cyrillic_comes_whole(cases: Cases) -> None:
    assert both(cases, "Съешь же ещё этих мягких французских булок") != ""


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_a8_a_character_that_the_limit_cuts_is_the_same_in_both_modes(
    cases: Cases, limit: int
) -> None:
    text = both(cases, "a😀b", max_tokens=limit)
    usage = cases.chat("a😀b", max_tokens=limit)["usage"]
    assert usage["completion_tokens"] == limit
    cut = "a😀b".encode()[:limit]
    assert text == cut.decode(errors="replace")
