"""What a request asks for becomes a grammar, or a clear error: quickly, whatever is asked."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from starsd.errors import GrammarError
from starsd.grammar import definition
from starsd.grammar.definition import define
from starsd.grammar.schema import MAX_ALL_PROPERTIES, MAX_MULTIPLE, MAX_PROPERTIES, MAX_REFERENCES
from starsd.protocol.grammar import GrammarKind
from tests.unit.grammar.support import begin, grammar, matches

JSON, REGEX, CHOICE, LARK = GrammarKind
PATIENCE_S = 5.0
"""What hostile grammars may take on a loaded machine; unbounded ones take minutes, or crash."""


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        (JSON, {"type": "object"}, ['{"a": [1, null]}', "{}"], ["[]", "", "{} ", "prose"]),
        (JSON, {"enum": ["a", 2]}, ['"a"', "2"], ["a", "3"]),
        (JSON, True, ["1", "{}"], ["", "x"]),
        (REGEX, "[0-9]{2}(x|y)?", ["12", "12x"], ["1", "12z", "12xx"]),
        (CHOICE, ["yes", "no", 'a "q"\n\\'], ["yes", 'a "q"\n\\'], ["ye", "yesno", ""]),
        (CHOICE, ["ü", "😀"], ["ü", "😀"], ["u"]),
        (LARK, 'start: "a" X\nX: /[0-9]+/', ["a1"], ["a", "b1"]),
        (LARK, 'root ::= "a" num\nnum ::= [0-9]+', ["a1"], ["a", "b1"]),
    ],
)
def test_kinds(kind: GrammarKind, source: Any, good: list[str], bad: list[str]) -> None:
    state = begin(kind, source)
    assert all(matches(state, text) for text in good)
    assert not any(matches(state, text) for text in bad)


@pytest.mark.parametrize("spaces", ["", " ", "\n  ", " " * 32])
def test_json_has_white_space_as_the_model_likes(spaces: str) -> None:
    state = begin(JSON, {"type": "array", "items": {"type": "integer"}})
    assert matches(state, f"[{spaces}1,{spaces}2{spaces}]")


def test_but_not_for_ever() -> None:
    assert not matches(begin(JSON, {"type": "array"}), "[" + " " * 33 + "]")


CLOSED = {"type": "object", "properties": {"é": {"type": "integer"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"é": {"type": "integer"}}}


@pytest.mark.parametrize("text", [r"caf\u00e9", "café", r"\ud83d\ude00", r"\u0001", r"\u002F", "/"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**CLOSED, "properties": {"a": {"type": "string"}, "b": CLOSED}},
        {"type": "object", "additionalProperties": {"type": "string", "maxLength": 5}},
    ],
    ids=["any", "closed", "map"],
)
def test_characters_may_be_escaped(schema: Any, text: str) -> None:
    assert matches(begin(JSON, schema), f'{{"a": "{text}"}}')


def test_an_escape_is_one_character_and_no_half_of_one() -> None:
    state = begin(JSON, {"type": "string", "maxLength": 2})
    assert matches(state, r'"\u00e9\ud83d\ude00"')
    assert not matches(state, r'"\u00e9\u00e9\u00e9"')
    assert not matches(state, r'"\ud83d"')


def test_no_escape_spells_a_declared_name_again() -> None:
    again = r'{"\u00e9": "no integer"}'
    for schema in (CLOSED, OPEN, {"type": "array", "items": OPEN}):
        state = begin(JSON, schema)
        assert not matches(state, again)
        assert not matches(state, f"[{again}]")
    assert matches(begin(JSON, OPEN), '{"é": 1, "ä": "any"}')
    assert not matches(begin(JSON, OPEN), r'{"é": 1, "ä": "\u00e4"}')


def test_only_declared_names_come_once() -> None:
    assert not matches(begin(JSON, OPEN), '{"é": 1, "é": 1}')
    assert matches(begin(JSON, {"type": "object", "minProperties": 2}), '{"a": 1, "a": 1}')


@pytest.mark.parametrize("name", ["password", "binary", "my-own"])
def test_formats_that_nobody_enforces_are_annotations(name: str) -> None:
    schema = {"type": "object", "properties": {"format": {"type": "string", "format": name}}}
    assert matches(begin(JSON, schema), '{"format": "x"}')


def test_known_formats_are_enforced() -> None:
    state = begin(JSON, {"type": "string", "format": "date"})
    assert matches(state, '"2026-11-30"')
    assert not matches(state, '"soon"')


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        (JSON, {"type": "strin"}, "strin"),
        (JSON, {"not": {}}, "not"),
        (JSON, {"uniqueItems": True, "type": "array"}, "uniqueItems"),
        (JSON, {"type": "string", "minLength": 5, "maxLength": 2}, "minLength"),
        (JSON, {"$ref": "http://127.0.0.1:9/schema"}, "127.0.0.1"),
        (JSON, {"$ref": "#/$defs/none"}, "none"),
        (JSON, {"$ref": "#"}, "no answer"),
        (JSON, {"x-guidance": {"lenient": True}}, "x-guidance"),
        (JSON, [], "object"),
        (JSON, {"maximum": 10**300}, "JSON"),
        (REGEX, "(", "unclosed"),
        (REGEX, r"(a)\1", "backreferences"),
        (REGEX, "(?=a)b", "look-ahead"),
        (REGEX, r"[^\s\S]", "no answer"),
        (CHOICE, [], "choices"),
        (CHOICE, ["a", ""], "empty"),
        (LARK, "start: (", "start"),
        (LARK, "root ::= ((", "GBNF"),
        (LARK, "start: nobody", "nobody"),
    ],
)
def test_what_is_wrong_is_said(kind: GrammarKind, source: Any, words: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(words)) as caught:
        begin(kind, source)
    assert caught.value.body().status == 400


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def chain(links: int, link: Callable[[str], Any] = lambda ref: {"$ref": ref}) -> Any:
    defs = {f"d{at}": link(f"#/$defs/d{at + 1}") for at in range(links)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{links}": {"type": "string"}}}


def fields(count: int) -> Any:
    return {"type": "object", "properties": {f"p{at}": {} for at in range(count)}}


HOSTILE: dict[str, tuple[GrammarKind, Any]] = {
    "deep": (JSON, nested(400)),
    "long chain of references": (JSON, chain(3000)),
    "references doubling": (JSON, chain(60, lambda ref: {"anyOf": [{"$ref": ref}] * 2})),
    "intersections doubling": (JSON, chain(60, lambda ref: {"allOf": [{"$ref": ref}] * 2})),
    "wide": (JSON, fields(3000)),
    "many wide": (JSON, {"prefixItems": [fields(400)] * 20, "type": "array"}),
    "many alternatives of many": (
        JSON,
        {"allOf": [{"anyOf": [fields(3) for _ in range(3)]} for _ in range(12)]},
    ),
    "required by the thousand": (JSON, {"type": "object", "required": [*map(str, range(2000))]}),
    "huge": (JSON, {"enum": ["x" * 70_000]}),
    "large multiples": (JSON, {"type": "integer", "multipleOf": 1_000_003}),
    "multiples of much": (
        JSON,
        {"allOf": [{"type": "integer", "multipleOf": m} for m in (97, 89, 83)]},
    ),
    "many items": (JSON, {"type": "array", "minItems": 10**9, "items": {"type": "integer"}}),
    "regex of all lengths": (REGEX, "((((a{0,100}){0,100}){0,100}){0,100})"),
    "regex of many states": (REGEX, "(a|b)*a(a|b){500}"),
    "regex too long": (REGEX, "a" * 9000),
    "regex too deep": (REGEX, "(" * 4000 + "a" + ")" * 4000),
    "backtracking": (REGEX, "(a*)*" * 50 + "b"),
    "unicode": (REGEX, r"(\p{L}|\p{N}|.)+" * 400),
    "choices": (CHOICE, [f"choice {at}" for at in range(2000)]),
    "rules in a chain": (LARK, "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(1500))),
    "rule too deep": (LARK, "root ::= " + "(" * 8000),
    "ambiguous": (LARK, 'start: x x x x x x\nx: "a" x | x "a" | "" | "a"'),
    "empty loops": (LARK, 'start: a*\na: b*\nb: c*\nc: "x"*'),
}


@pytest.mark.parametrize("name", [*HOSTILE])
def test_hostile_grammars_are_refused_or_walked_quickly(name: str) -> None:
    kind, source = HOSTILE[name]
    began = time.monotonic()
    try:
        state = begin(kind, source)
        for _ in range(20):
            allowed = state.mask([]).nonzero()[0]
            state.advance([int(allowed[len(allowed) // 2])])
    except GrammarError:
        pass
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize(
    ("schema", "limit"),
    [
        (fields(MAX_PROPERTIES + 1), MAX_PROPERTIES),
        ({"type": "array", "prefixItems": [fields(400)] * 3}, MAX_ALL_PROPERTIES),
        (chain(MAX_REFERENCES + 1), MAX_REFERENCES),
        ({"type": "number", "multipleOf": 0.12345}, MAX_MULTIPLE),
    ],
)
def test_limits_are_named(schema: Any, limit: int) -> None:
    with pytest.raises(GrammarError, match=str(limit)):
        define(grammar(JSON, schema))


def test_what_users_send_is_within_the_limits() -> None:
    """Recursive, with definitions, and a hundred fields."""
    node = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {**fields(100)["properties"], "list": {"$ref": "#/$defs/node"}},
        "required": ["list"],
        "$defs": {"node": node},
    }
    answer = {"list": {"value": 1, "next": {"value": 2}}}
    jsonschema.validate(answer, schema)
    assert matches(begin(JSON, schema), json.dumps(answer))


def test_bounds_of_the_other_kinds() -> None:
    for kind, source in [
        (REGEX, "a" * (definition.MAX_REGEX_CHARS + 1)),
        (LARK, "start: /a/\n" + "\n" * definition.MAX_LARK_CHARS),
        (CHOICE, ["a" * 40_000, "b" * 40_000]),
    ]:
        with pytest.raises(GrammarError, match=r"limit|characters"):
            define(grammar(kind, source))
