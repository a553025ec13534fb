"""Grammars of calls: what they allow, our parser reads back, and it matches the schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from starsd.errors import GrammarError
from starsd.grammar.compiler import GrammarCompiler
from starsd.grammar.state import GrammarState
from starsd.protocol.tools import Function, ToolChoice, ToolUse
from starsd.tools.enforce import definition
from starsd.tools.formats import ToolFormat
from tests.scripted import EOS, USER, VOCAB, byte_tokens
from tests.unit.grammar.support import matches
from tests.unit.tools.support import HERMES, LLAMA, MISTRAL, calls, parse

PLACE = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"type": "string"}},
}
WEATHER = Function(name="weather", parameters=PLACE)
STRICT = Function(name="weather", parameters=PLACE, strict=True)
TIME = Function(name="time")
ROME = '{"name": "weather", "arguments": {"city": "Rome"}}'
NOW = '{"name": "time", "arguments": {}}'


def start(
    use: ToolUse, form: ToolFormat = HERMES, answer: Any = None, marker: int | None = None
) -> GrammarState:
    text = definition(use, form, lambda _: marker, answer)
    assert text is not None
    return GrammarCompiler(byte_tokens(), VOCAB).start(text, [EOS])


def required(*functions: Function, **more: Any) -> ToolUse:
    return ToolUse(functions=functions, choice=ToolChoice.REQUIRED, **more)


def tagged(*bodies: str) -> str:
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def test_the_model_is_free_unless_something_is_asked() -> None:
    assert definition(ToolUse(functions=(WEATHER,)), HERMES, lambda _: None) is None


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (
            HERMES,
            [tagged(ROME), tagged(NOW), tagged(ROME, NOW), tagged(ROME.replace("o", r"\u00f6"))],
            ["", "hi", ROME],
        ),
        (
            LLAMA,
            [f.replace("arguments", "parameters") for f in (ROME, f"{ROME}; {NOW}")],
            ["", "hi", ROME],
        ),
        (MISTRAL, [f"[TOOL_CALLS][{ROME}]", f"[TOOL_CALLS][{ROME}, {NOW}]"], ["hi", f"[{ROME}]"]),
    ],
)
def test_required_calls(form: ToolFormat, good: list[str], bad: list[str]) -> None:
    state = start(required(WEATHER, TIME), form)
    for answer in good:
        assert matches(state, answer)
        for name, arguments in calls(parse(form, answer, {"weather", "time"})):
            schema: Any = PLACE if name == "weather" else {"maxProperties": 0}
            jsonschema.validate(json.loads(arguments), schema)
    assert not any(matches(state, answer) for answer in bad)


@pytest.mark.parametrize("form", ToolFormat)
def test_what_is_wrong_for_the_schema_is_not_allowed(form: ToolFormat) -> None:
    key = "parameters" if form is LLAMA else "arguments"
    for body in ('{"town": "Rome"}', "{}", '{"city": 5}'):
        call = f'{{"name": "weather", "{key}": {body}}}'
        answer = {HERMES: tagged(call), LLAMA: call, MISTRAL: f"[TOOL_CALLS][{call}]"}[form]
        assert not matches(start(required(WEATHER), form), answer)
        assert calls(parse(form, answer, {"weather"})), "the test must write a call"


def test_one_call_where_parallel_ones_are_not_wanted() -> None:
    state = start(required(WEATHER, TIME, parallel=False))
    assert matches(state, tagged(ROME))
    assert not matches(state, tagged(ROME, NOW))


def test_a_named_function() -> None:
    state = start(ToolUse(functions=(WEATHER, TIME), name="time"))
    assert matches(state, tagged(NOW))
    assert not matches(state, tagged(ROME))
    assert bytes(state.forced()).decode().startswith('<tool_call>\n{"name": "time", "arguments":')


@pytest.mark.parametrize(
    ("form", "marker"), [(HERMES, "<tool_call>\n"), (LLAMA, ""), (MISTRAL, "[TOOL_CALLS]")]
)
def test_strict_functions_bind_calls_and_leave_text_free(form: ToolFormat, marker: str) -> None:
    state = start(ToolUse(functions=(STRICT, TIME)), form)
    key = "parameters" if form is LLAMA else "arguments"
    body = '{"name": "weather", "%s": {"%s": "Rome"}}'
    end = {HERMES: "\n</tool_call>", LLAMA: "", MISTRAL: "]"}[form]
    opening = marker + "[" if form is MISTRAL else marker
    assert matches(state, opening + body % (key, "city") + end)
    assert not matches(state, opening + body % (key, "town") + end)
    assert all(matches(state, words) for words in ("", "Hello < [ you!\n\nBye", "<tool "))
    assert form is LLAMA or matches(state, "Look: " + opening + body % (key, "city") + end)


def test_functions_that_are_not_strict_stay_free_beside_one_that_is() -> None:
    state = start(ToolUse(functions=(STRICT, TIME)))
    assert matches(state, tagged('{"name": "time", "arguments": {"zone": 1}}'))


@pytest.mark.parametrize("form", [HERMES, MISTRAL])
def test_an_answer_of_a_schema_or_calls(form: ToolFormat) -> None:
    fields = {"name": {"type": "string"}, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": fields, "required": ["n"]}
    state = start(ToolUse(functions=(TIME,)), form, schema)
    call = tagged(NOW) if form is HERMES else f"[TOOL_CALLS][{NOW}]"
    assert matches(state, '{"n": 1}')
    assert matches(state, '{"name": "time", "n": 1}')
    assert matches(state, '{"name": "Bob","n":1, "other": []}')
    assert matches(state, call)
    assert not matches(state, "words")
    assert not matches(state, '{"n": "x"}')


def test_a_schema_beside_calls_that_are_nothing_but_json() -> None:
    with pytest.raises(GrammarError, match="look like JSON"):
        start(ToolUse(functions=(TIME,)), LLAMA, {"type": "object"})


@pytest.mark.parametrize("choice", ToolChoice)
def test_a_marker_that_is_one_token(choice: ToolChoice) -> None:
    """Spelled by its id, whatever letters stand for it."""
    state = start(ToolUse(functions=(STRICT,), choice=choice), MISTRAL, marker=USER)
    answer = [USER, *f"[{ROME}]".encode(), EOS]
    assert state.legal(answer) == len(answer)
    assert not (choice is ToolChoice.REQUIRED and matches(state, f"[TOOL_CALLS][{ROME}]"))


@pytest.mark.parametrize(
    "parameters",
    [{"type": "object", "not": {}}, {"type": "object", "properties": {"a" * 70_000: {}}}],
)
def test_parameters_that_cannot_be_enforced(parameters: dict[str, Any]) -> None:
    with pytest.raises(GrammarError):
        start(required(Function(name="f", parameters=parameters)))


def test_all_functions_share_the_bounds() -> None:
    wide = {"type": "object", "properties": {f"p{at}": {} for at in range(200)}}
    functions = [Function(name=f"f{at}", parameters=wide) for at in range(6)]
    with pytest.raises(GrammarError, match="1000"):
        start(required(*functions))
