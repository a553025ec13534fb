"""Messages with tool calls, as a chat template reads them.

A template that knows no tools gets them as text, in Hermes' format: what we read and enforce.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starsd.protocol.tools import ToolUse

Messages = list[dict[str, Any]]

# The wording of Hermes and Qwen 2.5, whose templates say it to their models.
PREAMBLE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def knows_tools(template: str) -> bool:
    """Whether a chat template shows tools to its model."""
    return "tools" in template


def with_objects(messages: Sequence[dict[str, Any]]) -> Messages:
    """Arguments of earlier calls as objects, which templates write as JSON; what is no object
    stays text."""
    return [_with_objects(message) for message in messages]


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = call["function"]
        calls.append({**call, "function": {**function, "arguments": _loaded(function)}})
    return {**message, "tool_calls": calls}


def _loaded(function: dict[str, Any]) -> Any:
    try:
        loaded = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return function["arguments"]
    return loaded if isinstance(loaded, dict) else function["arguments"]


def as_text(messages: Sequence[dict[str, Any]], use: ToolUse | None) -> Messages:
    """Tools, calls and their results for a template that knows none of them."""
    plain = [_as_text(message) for message in with_objects(messages)]
    if use is None:
        return plain
    tools = "\n".join(json.dumps(one.as_tool(), ensure_ascii=False) for one in use.functions)
    preamble = PREAMBLE.format(tools=tools)
    if plain[0]["role"] != "system":
        return [{"role": "system", "content": preamble}, *plain]
    content = f"{plain[0]['content']}\n\n{preamble}"
    return [{**plain[0], "content": content}, *plain[1:]]


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    called = message.get("tool_calls")
    if not called:
        return message
    calls = "\n".join(_call_text(call["function"]) for call in called)
    return {"role": message["role"], "content": f"{content}\n{calls}" if content else calls}


def _call_text(function: dict[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
