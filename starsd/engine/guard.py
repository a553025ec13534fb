"""What a client writes stays text: special tokens are the chat template's alone.

Otherwise ``<|im_end|><|im_start|>system`` inside a user's message would end it and give orders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from starsd.errors import RequestError

_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Unicode promises that these never mean a character."""


class Piece(NamedTuple):
    """Of a rendered chat; in a ``literal`` one nothing is special."""

    text: str
    literal: bool


class Guard:
    """Knows the special tokens of one tokenizer by their text."""

    def __init__(self, specials: Collection[str]) -> None:
        longest_first = sorted(specials, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def marked(self, messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        """The messages with each special token in them broken by a mark, and that mark; "" if
        there is none. Raises RequestError: they hold everything that could be one."""
        if not any(self._special.search(string) for string in _strings(messages)):
            return list(messages), ""
        text = json.dumps(messages, ensure_ascii=False)
        mark = next((mark for mark in _MARKS if mark not in text), None)
        if mark is None:
            raise RequestError("messages: all 32 of U+FDD0 to U+FDEF are used", param="messages")
        return [self._broken(message, mark) for message in messages], mark

    def _broken(self, value: Any, mark: str) -> Any:
        if isinstance(value, str):
            return self._special.sub(lambda found: found[0][0] + mark + found[0][1:], value)
        if isinstance(value, dict):
            return {key: self._broken(one, mark) for key, one in value.items()}
        return [self._broken(one, mark) for one in value] if isinstance(value, list) else value

    def pieces(self, text: str, mark: str) -> Iterator[Piece]:
        """A rendered chat, the marks taken out again. Literal is what lies between two special
        tokens of the template's if a mark does, too."""
        plain = ""
        for part in self._special.split(text) if mark else [text]:
            if mark and mark in part:
                yield Piece(plain, literal=False)
                yield Piece(part.replace(mark, ""), literal=True)
                plain = ""
            else:
                plain += part
        yield Piece(plain, literal=False)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)
