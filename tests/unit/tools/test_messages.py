"""Conversations with tool calls, as templates read them."""

from __future__ import annotations

from typing import Any

import pytest

from starsd.protocol.tools import Function, ToolUse
from starsd.tools.formats import ToolFormat, of_template
from starsd.tools.messages import as_text, knows_tools, with_objects

USE = ToolUse(functions=(Function(name="f", description="does it"), Function(name="g")))
USER = {"role": "user", "content": "hi"}


def called(arguments: str, content: str = "") -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [('{"a": 1}', {"a": 1}), ("", {}), ("{bad", "{bad"), ("[1]", "[1]")],
)
def test_templates_get_arguments_as_objects(arguments: str, given: object) -> None:
    message = called(arguments)
    (prepared,) = with_objects([message])
    assert prepared["tool_calls"][0]["function"] == {"name": "f", "arguments": given}
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


def test_messages_without_calls_are_as_they_were() -> None:
    assert with_objects([USER]) == [USER]


def test_a_template_without_tools_gets_them_as_a_system_message() -> None:
    first, second = as_text([USER], USE)
    assert first["role"] == "system"
    assert '{"name": "f", "description": "does it"' in first["content"]
    assert "<tool_call>" in first["content"]
    assert second == USER


def test_or_at_the_end_of_the_one_there_is() -> None:
    system = {"role": "system", "content": "Be brief."}
    first, second = as_text([system, USER], USE)
    assert first["content"].startswith("Be brief.\n\n# Tools")
    assert second == USER


def test_calls_and_results_become_text() -> None:
    result = {"role": "tool", "tool_call_id": "1", "content": "42"}
    assert as_text([USER, called('{"a": "ü"}', "so"), result], None) == [
        USER,
        {
            "role": "assistant",
            "content": 'so\n<tool_call>\n{"name": "f", "arguments": {"a": "ü"}}\n</tool_call>',
        },
        {"role": "user", "content": "<tool_response>\n42\n</tool_response>"},
    ]


@pytest.mark.parametrize(
    ("template", "form", "knows"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", ToolFormat.HERMES, False),
        ("{% if tools %}<tool_call>{% endif %}", ToolFormat.HERMES, True),
        ("{% if tools %}<|python_tag|>{% endif %}", ToolFormat.LLAMA3_JSON, True),
        ("{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS]{% endif %}", ToolFormat.MISTRAL, True),
    ],
)
def test_a_template_tells_its_format(template: str, form: ToolFormat, knows: bool) -> None:
    assert of_template(template) is form
    assert knows_tools(template) is knows
