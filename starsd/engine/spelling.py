"""The bytes that each token stands for: a part of a text's UTF-8, not always whole characters."""

from __future__ import annotations

import json
import re
from functools import cached_property

from tokenizers import Tokenizer as RustTokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "▁"
"""What SentencePiece writes for a space."""


class Spelling:
    """Of one tokenizer: byte-level BPE (GPT-2's alphabet), or pieces of text with byte fallback."""

    def __init__(self, backend: RustTokenizer) -> None:
        self._backend = backend
        self._added = {
            token: added.content for token, added in backend.get_added_tokens_decoder().items()
        }

    def of(self, token: int) -> bytes:
        """Empty for an id that stands for nothing, like the padding of a model's head."""
        if token in self._added:
            return self._added[token].encode()
        piece = self._backend.id_to_token(token) or ""
        if self._byte_level:
            return bytes(_BYTE_OF[char] for char in piece if char in _BYTE_OF)
        if byte := _BYTE.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        return piece.replace(_SPACE, " ").encode()

    @cached_property
    def _byte_level(self) -> bool:
        decoder = json.loads(self._backend.to_str()).get("decoder") or {}
        steps = decoder.get("decoders", [decoder])
        return any(step.get("type") == "ByteLevel" for step in steps)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes are themselves, the others are shifted above 255 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(256 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTE_OF = _byte_alphabet()
