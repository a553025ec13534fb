"""Functions that a model may call, and calls as they stream."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class ToolChoice(StrEnum):
    AUTO = "auto"  # the model decides
    REQUIRED = "required"  # one call or more, and nothing else


class Function(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``parameters`` is a JSON schema. With ``strict`` arguments always match it."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False

    def as_tool(self) -> dict[str, Any]:
        """OpenAI's object, as chat templates know it."""
        known = {"name": self.name, "description": self.description or ""}
        parameters = self.parameters or {"type": "object", "properties": {}}
        return {"type": "function", "function": {**known, "parameters": parameters}}


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """``name``: this function must be called. Without ``parallel`` an answer ends with its first
    call."""

    functions: tuple[Function, ...]
    choice: ToolChoice = ToolChoice.AUTO
    name: str | None = None
    parallel: bool = True

    @property
    def eligible(self) -> tuple[Function, ...]:
        """Those that may be called."""
        if self.name is None:
            return self.functions
        return tuple(one for one in self.functions if one.name == self.name)


class CallDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a call: first its id and name, then fragments of its arguments.

    ``broken`` ends a call that came to nothing: it is all that the model wrote of it, to be shown
    as text instead, and ``rest`` the part that is in none of its fragments. Its place is after
    ``at`` characters of the event's text.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    broken: str | None = None
    rest: str = ""
    at: int = 0
