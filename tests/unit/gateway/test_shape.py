"""Fields that say what shape an answer has, and which tools it may call."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.schema import ChatRequest, CompletionRequest
from services.gateway.translate import chat_asked, completion_asked
from starsd.errors import ErrorBody
from starsd.protocol.events import Generate
from starsd.protocol.grammar import Grammar, GrammarKind
from starsd.protocol.tools import Function, ToolChoice, ToolUse
from tests.unit.gateway.test_schema import refused

JSON, REGEX, CHOICE, LARK = GrammarKind
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"ü": {"type": "integer"}}}
TEXT = '{"type":"object","properties":{"ü":{"type":"integer"}}}'
ANY = '{"type":"object"}'
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "g", "strict": True, "description": "d"}}
NAMED = {"type": "function", "function": {"name": "g"}}
F = Function(name="f", parameters=SCHEMA)
G = Function(name="g", description="d", strict=True)


def generate(**fields: Any) -> Generate:
    body = {"model": "m", "messages": [USER], "seed": 1, **fields}
    (one,) = chat_asked(ChatRequest.model_validate(body), "id").requests
    return one


def refusal(**fields: Any) -> ErrorBody:
    return refused(lambda: generate(**fields))


def schema_format(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", **fields}}


SHAPES = [
    ({"response_format": {"type": "json_object"}}, (JSON, ANY, "response_format")),
    ({"response_format": schema_format(schema=SCHEMA)}, (JSON, TEXT, "response_format")),
    (
        {"response_format": schema_format(schema=SCHEMA, strict=True, description="d")},
        (JSON, TEXT, "response_format"),
    ),
    ({"response_format": schema_format()}, (JSON, ANY, "response_format")),
    ({"guided_json": SCHEMA}, (JSON, TEXT, "guided_json")),
    ({"guided_json": TEXT}, (JSON, TEXT, "guided_json")),
    ({"guided_regex": "a+"}, (REGEX, "a+", "guided_regex")),
    ({"guided_choice": ["a", "ü"]}, (CHOICE, '["a","ü"]', "guided_choice")),
    ({"guided_grammar": "g"}, (LARK, "g", "guided_grammar")),
    ({"structured_outputs": {"json": SCHEMA}}, (JSON, TEXT, "structured_outputs.json")),
    ({"structured_outputs": {"regex": "a"}}, (REGEX, "a", "structured_outputs.regex")),
    ({"structured_outputs": {"choice": ["a"]}}, (CHOICE, '["a"]', "structured_outputs.choice")),
    ({"structured_outputs": {"grammar": "g"}}, (LARK, "g", "structured_outputs.grammar")),
    ({"structured_outputs": {"json_object": True}}, (JSON, ANY, "structured_outputs.json_object")),
]


@pytest.mark.parametrize(("fields", "grammar"), SHAPES, ids=repr)
def test_each_field_is_a_grammar(fields: dict[str, Any], grammar: tuple[Any, ...]) -> None:
    assert generate(**fields).grammar == Grammar(*grammar)
    body = CompletionRequest.model_validate({"model": "m", "prompt": "x", **fields})
    assert completion_asked(body, "id").requests[0].grammar == Grammar(*grammar)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"structured_outputs": {}},
        {"guided_json": None},
    ],
    ids=repr,
)
def test_what_asks_for_no_shape(fields: dict[str, Any]) -> None:
    assert generate(**fields).grammar is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "text", "json_schema": {"name": "n"}}},
            "response_format.json_schema",
        ),
        ({"response_format": schema_format(schema=5)}, "response_format.json_schema.schema"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_json": {"title": "\ud800"}}, "guided_json"),
        ({"guided_json": [SCHEMA]}, "guided_json"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        ({"guided_regex": "a", "guided_json": SCHEMA}, "guided_regex"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs.regex",
        ),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"whitespace": 1}}, "structured_outputs.whitespace"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
    ],
    ids=repr,
)
def test_wrong_shapes_are_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.status == 400
    assert error.param == param


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        ({}, ToolUse(functions=(F, G))),
        ({"tool_choice": "auto"}, ToolUse(functions=(F, G))),
        ({"tool_choice": None}, ToolUse(functions=(F, G))),
        ({"tool_choice": "required"}, ToolUse(functions=(F, G), choice=ToolChoice.REQUIRED)),
        ({"tool_choice": NAMED}, ToolUse(functions=(F, G), name="g")),
        ({"parallel_tool_calls": False}, ToolUse(functions=(F, G), parallel=False)),
        ({"tool_choice": "none"}, None),
        ({"tools": []}, None),
        ({"tools": None, "tool_choice": "auto", "parallel_tool_calls": True}, None),
    ],
    ids=repr,
)
def test_tools(fields: dict[str, Any], use: ToolUse | None) -> None:
    assert generate(**{"tools": [TOOL, OTHER], **fields}).tools == use


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "code_interpreter", "function": {"name": "f"}}]}, "tools[0].type"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
        ),
        ({"tools": [{**TOOL, "cache_control": {}}]}, "tools[0].cache_control"),
        ({"tools": [TOOL], "guided_regex": "a"}, "guided_regex"),
        ({"tools": [TOOL], "ignore_eos": True}, "ignore_eos"),
    ],
    ids=repr,
)
def test_wrong_tools_are_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.status == 400
    assert error.param == param


def test_tools_may_go_with_a_schema() -> None:
    wanted = generate(tools=[TOOL], response_format=schema_format(schema=SCHEMA))
    assert wanted.grammar is not None
    assert wanted.tools is not None


def test_c4_a_turn_of_calls_and_results_goes_to_the_template() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]
    assert generate(messages=[USER, *turns]).messages[1:] == [{**turns[0], "content": ""}, turns[1]]
