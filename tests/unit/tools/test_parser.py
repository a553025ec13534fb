"""Tool calls in the formats that models write, whole, split anywhere, cut off, or wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.tools.formats import MARKUP, ToolFormat
from starsd.tools.parser import ToolParser
from starsd.tools.pieces import Arguments, Broken, Called, Text
from tests.unit.tools.support import HERMES, LLAMA, MISTRAL, calls, parse, streamed, text

ROME = '{"city": "Rome", "odd": "}]\\" </tool_call> \\\\"}'
TIME = "{}"
HERMES_TWO = (
    '<tool_call>\n{"name": "weather", "arguments": ' + ROME + "}\n</tool_call>\n"
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)
LLAMA_TWO = '{"name": "weather", "parameters": ' + ROME + '}; {"name": "time", "parameters": {}}'
MISTRAL_TWO = (
    '[TOOL_CALLS][{"name": "weather", "arguments": '
    + ROME
    + '}, {"name": "time", "arguments": {}}]'
)
MISTRAL_NAMED = "[TOOL_CALLS]weather[ARGS]" + ROME + "[TOOL_CALLS]time" + TIME
BOTH = [("weather", ROME), ("time", TIME)]
WHOLE = [
    (HERMES, HERMES_TWO),
    (HERMES, HERMES_TWO + "\n"),
    (LLAMA, LLAMA_TWO),
    (LLAMA, "<|python_tag|>" + LLAMA_TWO),
    (LLAMA, "\n" + LLAMA_TWO),
    (MISTRAL, MISTRAL_TWO),
    (MISTRAL, MISTRAL_TWO.replace("][", "] [")),
    (MISTRAL, MISTRAL_NAMED),
]
OTHERS = [
    (HERMES, "a < b and <tool for c"),
    (HERMES, 'think. \n\n<tool_call>{"name": "f"}</tool_call> and more'),
    (HERMES, "x <tool_call>no json</tool_call> y"),
    (HERMES, '<tool_call>{"name": "f", "arguments": {a: 1}}</tool_call> after'),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1'),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1}, "name": "g"}</tool_call>'),
    (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'),
    (HERMES, '<tool_call>[{"name": "f", "arguments": "{\\"a\\": 1}"}, {"name": "g"}]</tool_call>'),
    (HERMES, '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    (LLAMA, '{"answer": {"name": "f"}}'),
    (LLAMA, '{"name": "Bob", "age": 3}'),
    (LLAMA, 'Sure: {"name": "f", "parameters": {}}'),
    (LLAMA, '<|python_tag|>brave_search.call(query="x")'),
    (LLAMA, '{"name": "f", "parameters": {}} trailing'),
    (LLAMA, "  {"),
    (MISTRAL, "[TOOL_CALLS]I would rather not call anything."),
    (MISTRAL, 'text [TOOL_CALLS] [{"name": "f", "argu'),
    (MISTRAL, "a list: [1, 2]"),
]


@pytest.mark.parametrize(("form", "answer"), WHOLE)
def test_whole_calls(form: ToolFormat, answer: str) -> None:
    pieces = parse(form, answer)
    assert calls(pieces) == BOTH
    assert text(pieces) == ""


@pytest.mark.parametrize(("form", "answer"), [*WHOLE, *OTHERS])
def test_e24_one_character_at_a_time_or_all_at_once(form: ToolFormat, answer: str) -> None:
    assert parse(form, [*answer]) == parse(form, answer)


@given(st.sampled_from([*WHOLE, *OTHERS]), st.data())
def test_pieces_do_not_depend_on_the_split(
    case: tuple[ToolFormat, str], data: st.DataObject
) -> None:
    form, answer = case
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)))))
    parts = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert parse(form, parts) == parse(form, answer)


MARKS = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    '{"name": "f", ',
    '"arguments": {',
]
SOUP = st.lists(st.sampled_from([*MARKS, *'{}[]":;, \n\\ab', "name", "f{}"]), max_size=25)


@given(st.sampled_from(ToolFormat), SOUP)
def test_any_text_gives_the_same_pieces_however_split(form: ToolFormat, soup: list[str]) -> None:
    answer = "".join(soup)
    assert parse(form, soup) == parse(form, answer) == parse(form, [*answer])


@given(st.sampled_from(ToolFormat), SOUP)
def test_no_text_is_lost(form: ToolFormat, soup: list[str]) -> None:
    """What is in no call is in the text; of markup and white space only calls' own is missing."""
    answer = "".join(soup)
    pieces = parse(form, answer)
    if not calls(pieces):
        assert text(pieces) == answer
    for name, arguments in calls(pieces):
        assert name
        assert isinstance(json.loads(arguments), dict)


def test_an_answer_cut_off_in_its_call_keeps_every_character() -> None:
    for end in range(HERMES_TWO.index("}}")):
        pieces = parse(HERMES, HERMES_TWO[:end])
        assert calls(pieces) == []
        assert text(pieces) == HERMES_TWO[:end]


def test_a_name_comes_first_and_arguments_as_they_are_written() -> None:
    parser = ToolParser(MARKUP[HERMES])
    assert parser.push('<tool_call>{"name": "f",') == []
    assert parser.push(' "arguments": {"a"') == [Called(0, "f"), Arguments(0, '{"a"')]
    assert parser.push(": [1") == [Arguments(0, ": [1")]
    assert parser.push("]}}</tool_call>") == [Arguments(0, "]}")]
    assert parser.closed == 1
    assert parser.finish() == []


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ("Let me look.\n\n" + HERMES_TWO, "Let me look."),
        (HERMES_TWO + "\n\nDone.", "\n\nDone."),
        ("  \n" + HERMES_TWO + "  \n", ""),
    ],
)
def test_white_space_beside_calls_is_markup(answer: str, content: str) -> None:
    pieces = parse(HERMES, answer)
    assert calls(pieces) == BOTH
    assert text(pieces) == content


def test_text_is_shown_as_soon_as_it_cannot_be_a_call() -> None:
    parser = ToolParser(MARKUP[HERMES])
    assert parser.push("1 <") == [Text("1")]
    assert parser.push("tool") == []
    assert parser.push("s>") == [Text(" <tools>")]


def test_json_that_is_no_call_is_shown_at_its_first_strange_key() -> None:
    parser = ToolParser(MARKUP[LLAMA])
    assert parser.push('{"ans') == []
    assert parser.push('wer": ') == [Text('{"answer"'), Text(": ")]


def test_arguments_before_the_name() -> None:
    answer = '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'
    assert calls(parse(HERMES, [*answer])) == [("f", '{"a": 1}')]


@pytest.mark.parametrize(
    ("written", "arguments"), [('"{\\"a\\": 1}"', '{"a": 1}'), ("null", "{}"), ('"{}"', "{}")]
)
def test_arguments_as_a_string_or_null(written: str, arguments: str) -> None:
    answer = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    assert calls(parse(HERMES, answer)) == [("f", arguments)]


def test_a_call_without_arguments() -> None:
    assert calls(parse(HERMES, '<tool_call>{"name": "f"}</tool_call>')) == [("f", "{}")]


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1'),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1}'),
        (LLAMA, '{"name": "f", "parameters": {"a'),
        (MISTRAL, '[TOOL_CALLS]f{"a": "b'),
    ],
)
def test_a_call_cut_off_is_text_of_the_whole_and_a_fragment_in_the_stream(
    form: ToolFormat, answer: str
) -> None:
    *_, fragment, broken = parse(form, answer, {"f"})
    assert isinstance(fragment, Arguments)
    assert answer.endswith(fragment.text)
    assert broken == Broken(0, answer, "")


def test_a_malformed_call_is_text_and_what_follows_goes_on() -> None:
    bad = '<tool_call>{"name": "f", "arguments": {a: 1}}</tool_call>'
    pieces = parse(HERMES, f"{bad} then {HERMES_TWO}")
    assert calls(pieces) == BOTH
    assert text(pieces) == f"{bad} then"
    assert streamed(pieces) == "}</tool_call> then"
    assert [piece.index for piece in pieces if isinstance(piece, Called)] == [0, 1, 2]


@pytest.mark.parametrize("names", [None, {"f"}, {"g"}])
def test_only_known_names_where_json_alone_makes_a_call(names: set[str] | None) -> None:
    answer = '{"name": "f", "parameters": {}}'
    found = calls(parse(LLAMA, answer, names))
    assert found == ([] if names == {"g"} else [("f", "{}")])


def test_a_long_answer_takes_its_time_once() -> None:
    """Twenty thousand tokens of arguments, pushed one by one."""
    long = json.dumps({"text": "word " * 20_000})
    answer = f'<tool_call>{{"name": "f", "arguments": {long}}}</tool_call>'
    parts = [answer[at : at + 5] for at in range(0, len(answer), 5)]
    assert calls(parse(HERMES, parts)) == [("f", long)]
