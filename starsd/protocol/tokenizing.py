"""Gateway -> target over HTTP: text to token ids and back, one JSON object each way."""

from __future__ import annotations

from typing import Any

import msgspec

TOKENIZE_PATH = "/internal/v1/tokenize"
DETOKENIZE_PATH = "/internal/v1/detokenize"


class Tokenize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ``prompt``, with the tokens that begin or end a text if ``special``; or ``messages``, with
    what asks for an ``answer``. ``spelled``: the tokens' bytes are wanted, too."""

    model: str
    messages: list[dict[str, Any]] = []
    prompt: str | None = None
    special: bool = True
    answer: bool = True
    spelled: bool = False


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """``max_length`` is the model's context."""

    ids: list[int]
    max_length: int
    spelling: list[bytes] | None = None


class Detokenize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    ids: list[int]


class Text(msgspec.Struct, frozen=True, kw_only=True):
    text: str
