"""What shape an answer must have, as a request says it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class GrammarKind(StrEnum):
    JSON = "json"  # source: a JSON schema
    REGEX = "regex"
    CHOICE = "choice"  # source: a JSON list of strings
    LARK = "lark"  # or GBNF


class Grammar(msgspec.Struct, frozen=True):
    """The whole answer matches ``source``. ``param`` is the field of the request it came with,
    which errors name."""

    kind: GrammarKind
    source: str
    param: str
