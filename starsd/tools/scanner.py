"""One tool call read character by character: its name, and its arguments as they come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

SPACE = " \t\n\r"
ARGUMENT_KEYS = ("arguments", "parameters")
OTHER_KEYS = ("id", "type")


class Value:
    """One JSON value, found by its brackets and quotes; whether it is right is asked at the end."""

    def __init__(self) -> None:
        self.text = ""
        self.done = False
        self._depth = 0
        self._quoted = self._escaped = False

    def push(self, char: str) -> bool:
        """Whether the character is part of it: the end of a number is seen only beyond it."""
        if not (self._quoted or self._depth) and self.text and char in ",}]" + SPACE:
            self.done = True
            return False
        self.text += char
        if self._quoted:
            self._quote(char)
        elif char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
        self.done = not (self._quoted or self._depth) and self.text[-1] in '"}]'
        return True

    def _quote(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._quoted = False

    def load(self) -> Any:
        """Raises ValueError or RecursionError."""
        return json.loads(self.text)


class Scanner:
    """Base: takes characters while the call lasts; ``name`` and ``arguments`` grow.

    ``announced``: it is a call beyond doubt, with a name and an object that begins. ``tail`` is
    what came after the arguments. ``done`` or ``failed`` at the end.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.arguments = ""
        self.tail = ""
        self.announced = False
        self.done = False
        self.failed = False
        self._step: Callable[[str], None] = self._unready

    def push(self, char: str) -> None:
        self.tail += char
        self._step(char)

    def _unready(self, char: str) -> None:
        raise NotImplementedError

    def fail(self) -> None:
        self.failed = True

    def _finish(self, arguments: Value | None) -> None:
        """Nothing more to come: is it a call?"""
        try:
            whole = isinstance(arguments and arguments.load(), dict)
        except (ValueError, RecursionError):
            whole = False
        self.done, self.failed = whole, not whole


class JsonCall(Scanner):
    """``{"name": ..., "arguments": {...}}``, in either order; ``parameters`` says the same."""

    def __init__(self, *, bare: bool = False) -> None:
        """``bare``: nothing but its keys tells it from other JSON, so they must be right."""
        super().__init__()
        self._bare = bare
        self._key = ""
        self._value = Value()
        self._object: Value | None = None
        self._step = self._open

    def _open(self, char: str) -> None:
        self._among(char, {"{": self._first_key})

    def _first_key(self, char: str) -> None:
        self._among(char, {'"': self._in_key, "}": self._end})

    def _next_key(self, char: str) -> None:
        self._among(char, {'"': self._in_key})

    def _among(self, char: str, steps: dict[str, Callable[[str], None]]) -> None:
        """Past white space, one of these goes on, with the character where it is part of more."""
        if char in SPACE:
            return
        step = steps.get(char)
        if step is None:
            self.fail()
        elif char in '"}':
            step(char)
        else:
            self._step = step

    def _in_key(self, char: str) -> None:
        if not self._value.text:
            self._step = self._in_key
        self._value.push(char)
        if self._value.done:
            self._key, self._value = self._text_of(self._value), Value()
            self._step = self._colon
            if self._bare and self._key not in ("name", *ARGUMENT_KEYS, *OTHER_KEYS):
                self.fail()

    def _colon(self, char: str) -> None:
        self._among(char, {":": self._before_value})

    def _before_value(self, char: str) -> None:
        if char in SPACE:
            return
        if char in ",}]":
            self.fail()
            return
        if self._key in ARGUMENT_KEYS:
            if self._object is not None:
                self.fail()
            self._object = self._value
        self._step = self._in_value
        self._in_value(char)

    def _in_value(self, char: str) -> None:
        taken = self._value.push(char)
        if taken and self._value is self._object:
            self._argue()
        if self._value.done:
            self._close_value()
            if not taken and not self.failed:
                self._step(char)

    def _argue(self) -> None:
        """The arguments so far are to be shown once the name is known, if they are an object."""
        if self.name is not None and self._object and self._object.text.startswith("{"):
            self.arguments, self.tail, self.announced = self._object.text, "", True

    def _close_value(self) -> None:
        value, self._value = self._value, Value()
        self._step = self._comma
        if self._key == "name":
            self._name(value)
        elif value is self._object:
            self._close_arguments(value)

    def _name(self, value: Value) -> None:
        if self.name is not None:
            self.fail()
            return
        self.name = self._text_of(value) or None
        if self.name is None:
            self.fail()
        self._argue()

    def _close_arguments(self, value: Value) -> None:
        """Some models write their object as a string, or null for none."""
        if value.text.startswith("{"):
            return
        inner = "{}" if value.text == "null" else self._text_of(value).strip()
        if not inner.startswith("{"):
            self.fail()
        value.text = inner
        self._argue()

    def _comma(self, char: str) -> None:
        self._among(char, {",": self._next_key, "}": self._end})

    def _end(self, char: str) -> None:
        if self._object is None and not self._bare:
            self._object = Value()
            self._object.text = "{}"
            self._argue()
        if self.name is None:
            self.fail()
        else:
            self._finish(self._object)

    def _text_of(self, value: Value) -> str:
        """Of a JSON string; of anything else nothing, and the call fails."""
        try:
            text = value.load()
        except (ValueError, RecursionError):
            text = None
        if not isinstance(text, str):
            self.fail()
            return ""
        return text


class NamedCall(Scanner):
    """``name{...}`` or ``name[ARGS]{...}``, as later Mistral models write."""

    ARGS = "[ARGS]"
    MAX_NAME = 256

    def __init__(self) -> None:
        super().__init__()
        self._head = ""
        self._object = Value()
        self._step = self._in_head

    def _in_head(self, char: str) -> None:
        if char != "{":
            self._head += char
            if len(self._head) > self.MAX_NAME:
                self.fail()
            return
        name = self._head.strip().removesuffix(self.ARGS).partition("[CALL_ID]")[0].strip()
        if not name or any(mark in name for mark in SPACE + '"[]{}'):
            self.fail()
            return
        self.name, self.announced = name, True
        self._step = self._in_object
        self._in_object(char)

    def _in_object(self, char: str) -> None:
        self._object.push(char)
        self.arguments, self.tail = self._object.text, ""
        if self._object.done:
            self._finish(self._object)
