"""What every client asks, and where. ``ECHO`` repeats the last message, so an answer is known."""

from __future__ import annotations

import json
import os
from typing import Any

URL = os.environ.get("CONFORMANCE_URL", "")
"""Of the gateway, without /v1."""
BASE = f"{URL}/v1"
ECHO, PUPIL, MODEL = "echo", "pupil", "smollm2-135m-instruct"
KEY = "none"
TEXT = "Hello, \N{SNOWMAN} and all the stars!"
THING: dict[str, Any] = {"name": "Vega", "size": 3}
THING_JSON = json.dumps(THING)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


def call_of(name: str, arguments: dict[str, Any] | None = None) -> str:
    """A call as the models write it."""
    called = {"name": name, "arguments": THING if arguments is None else arguments}
    return f"<tool_call>\n{json.dumps(called, ensure_ascii=False)}\n</tool_call>"
