"""The text of an answer depends on its tokens and stops alone, not on how they came in steps."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.target.assembly import Assembly, StopMatcher
from starsd.protocol.events import Delta
from starsd.protocol.frames import FinishReason, Origin
from tests.unit.target.bytetext import EOS, ByteTokenizer

LENGTH, STOP = FinishReason.LENGTH, FinishReason.STOP


def assembly(stops: Sequence[str] = (), *pieces: str) -> Assembly:
    return Assembly(ByteTokenizer(*pieces), stops, (EOS,))


def push(one: Assembly, tokens: Sequence[int], origin: Origin = Origin.ACCEPTED) -> Delta:
    return one.push(tokens, [origin] * len(tokens))


def whole(one: Assembly, steps: Sequence[Sequence[int]]) -> tuple[str, list[int], FinishReason]:
    """Everything a reader gets: text, ids, reason."""
    deltas = [push(one, step) for step in steps]
    tail, reason = one.finish(LENGTH)
    ids = [token for delta in deltas for token in delta.ids]
    return "".join(delta.text for delta in deltas) + tail, ids, reason


def test_plain_text_passes_through_at_once() -> None:
    one = assembly()
    delta = one.push(list(b"ab"), [Origin.ACCEPTED, Origin.BONUS])
    origins = [Origin.ACCEPTED, Origin.BONUS]
    assert delta == Delta(ids=list(b"ab"), origins=origins, text="ab", lengths=[1, 1])
    assert one.finish(LENGTH) == ("", LENGTH)
    assert one.completion_tokens == 2


def test_nothing_of_a_stop_string_is_ever_shown() -> None:  # A1
    tokenizer = ByteTokenizer("text", "END", "_OF", "_REC", "more")
    one = Assembly(tokenizer, ["END_OF_REC"], (EOS,))
    texts = [push(one, [token]).text for token in tokenizer.pieces()]
    assert texts == ["text", "", "", "", ""]
    assert one.stopped
    assert one.finish(FinishReason.CANCELLED) == ("", STOP)
    assert one.completion_tokens == 4


def test_stop_text_is_cut_from_within_a_token() -> None:  # A3
    one = assembly(["5"], "4 5 6")
    assert push(one, [300]).text == "4 "
    assert one.finish(LENGTH) == ("", STOP)


def test_held_text_comes_when_it_cannot_become_a_stop_any_more() -> None:  # A4
    one = assembly(["x" * 40])
    assert push(one, list(b"xxx")).text == ""
    assert push(one, list(b"y")).text == "xxxy"
    assert push(one, list(b"xx")).text == ""
    assert one.finish(LENGTH) == ("xx", LENGTH)


def test_a_failed_start_may_hide_the_true_start() -> None:
    one = assembly(["aab"])
    assert "".join(push(one, [byte]).text for byte in b"aaab") == "a"
    assert one.stopped


@pytest.mark.parametrize("text", ["😀", "漢字", "Привет"])
def test_characters_of_several_tokens_come_whole(text: str) -> None:  # A6, A7
    one = assembly()
    shown = [push(one, [byte]).text for byte in text.encode()]
    assert "".join(shown) == text
    assert not any("\ufffd" in part for part in shown)


def test_a_character_cut_by_the_limit_is_the_same_in_any_steps() -> None:  # A8
    tokens = list("a😀".encode()[:3])
    assert whole(assembly(), [tokens]) == whole(assembly(), [[t] for t in tokens])
    one = assembly()
    whole(one, [tokens])
    assert one.completion_tokens == 3


def test_max_tokens_is_length() -> None:  # B4
    one = assembly()
    push(one, list(b"a"))
    assert one.finish(LENGTH) == ("", LENGTH)


def test_nothing_follows_an_end_token() -> None:  # E5, E8
    one = assembly()
    delta = push(one, [*b"ab", EOS, *b"cde"])
    origins = [Origin.ACCEPTED] * 3
    assert delta == Delta(ids=[*b"ab", EOS], origins=origins, text="ab", lengths=[1, 1, 0])
    assert push(one, list(b"f")).ids == []
    assert one.finish(LENGTH) == ("", STOP)
    assert one.completion_tokens == 3
    assert not one.stopped  # the loop ends by itself


def test_end_token_releases_what_was_held() -> None:
    one = assembly(["END"])
    assert push(one, [*b"aE", EOS]).text == "a"
    assert one.finish(STOP) == ("E", STOP)


def test_text_ids_and_usage_agree_when_a_stop_completes_mid_step() -> None:  # E7
    one = assembly(["3"])
    origins = [Origin.ACCEPTED] * 8 + [Origin.BONUS]
    delta = one.push(list(b"123456789"), origins)
    assert (delta.text, delta.ids, len(delta.origins)) == ("12", list(b"123"), 3)
    assert one.completion_tokens == 3


def test_several_pieces_in_one_step_are_assembled_token_by_token() -> None:  # E24
    tokenizer = ByteTokenizer("<call>", "x", "</call>", "rest")
    one = Assembly(tokenizer, ["</call>"], (EOS,))
    delta = push(one, tokenizer.pieces())
    assert (delta.text, len(delta.ids)) == ("<call>x", 3)


def test_the_stop_completed_first_wins_and_of_those_the_longest() -> None:
    matcher = StopMatcher(["abcd", "bc", "c"])
    assert (matcher.push("xabcd"), matcher.matched) == ("xa", True)


def test_a_stop_may_complete_in_the_tail() -> None:
    one = assembly(["a\ufffd"])
    push(one, [*b"a", 0xF0])
    assert one.finish(LENGTH) == ("", STOP)


# -- against an offline computation ------------------------------------------------------------

WORDS = ("ab", "aab", "b", "é", "😀", "END", "EN", "a😀b")
LETTERS = st.text("abENDé😀", max_size=6)


def cut(text: str, stops: Sequence[str]) -> str | None:
    """The text before the stop that is complete first, by brute force."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)]
    return None


def offline(
    tokens: Sequence[int], pieces: Sequence[str], stops: Sequence[str]
) -> tuple[str, int, FinishReason]:
    """Text, completion tokens and reason, from the whole answer again for each of its tokens."""
    stream = ByteTokenizer(*pieces).text_stream()
    data = b""
    for count, token in enumerate(tokens, 1):
        data += stream.piece(token)
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
        before = cut(text, stops)
        if before is not None:
            return before, count, STOP
        if token == EOS:
            text = data.decode("utf-8", "replace")
            before = cut(text, stops)
            return text if before is None else before, count, STOP
    text = data.decode("utf-8", "replace")
    before = cut(text, stops)
    return (text, len(tokens), LENGTH) if before is None else (before, len(tokens), STOP)


tokens_of = st.lists(
    st.one_of(
        st.sampled_from([*b"abEND", *"é😀".encode()]),
        st.sampled_from([300 + place for place in range(len(WORDS))]),
        st.just(EOS),
    ),
    max_size=30,
)


@given(
    tokens=tokens_of,
    stops=st.lists(LETTERS.filter(bool), max_size=4),
    cuts=st.lists(st.integers(0, 30), max_size=10),
)
def test_any_steps_give_the_offline_answer(
    tokens: list[int], stops: list[str], cuts: list[int]
) -> None:
    bounds = sorted({0, len(tokens), *(c for c in cuts if c < len(tokens))})
    steps = [tokens[a:b] for a, b in itertools.pairwise(bounds)]
    one = assembly(stops, *WORDS)
    text, ids, reason = whole(one, steps)
    assert (text, len(ids), reason) == offline(tokens, WORDS, stops)
    assert ids == tokens[: len(ids)]
    assert one.completion_tokens == len(ids)
    assert not any(stop in text for stop in stops)


@given(text=LETTERS, stops=st.lists(LETTERS.filter(bool), max_size=3), data=st.data())
def test_matcher_shows_the_same_for_any_portions(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text)))
    one, two = StopMatcher(stops), StopMatcher(stops)
    assert one.push(text) + one.flush() == two.push(text[:at]) + two.push(text[at:]) + two.flush()
