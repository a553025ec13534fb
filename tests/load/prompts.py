"""Prompts from a JSONL file: ``{"prompt": TEXT}`` or ``{"messages": [...]}`` a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

DEFAULT = Path(__file__).with_name("prompts.jsonl")
Messages = list[dict[str, Any]]


class Line(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str = ""
    messages: Messages = []


def load_prompts(path: Path) -> list[Messages]:
    """Raises ValueError with the line's number, or OSError."""
    numbered = enumerate(path.read_bytes().splitlines(), start=1)
    prompts = [_messages(line, f"{path}:{number}") for number, line in numbered if line.strip()]
    if not prompts:
        raise ValueError(f"{path}: no prompts")
    return prompts


def _messages(line: bytes, where: str) -> Messages:
    try:
        parsed = msgspec.json.decode(line, type=Line)
    except msgspec.DecodeError as error:
        raise ValueError(f"{where}: {error}") from error
    if bool(parsed.prompt) == bool(parsed.messages):
        raise ValueError(f'{where}: needs either "prompt" or "messages"')
    return parsed.messages or [{"role": "user", "content": parsed.prompt}]
