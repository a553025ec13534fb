"""A tokenizer whose text the tests can read: one byte a token, pieces for longer ones."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLTokenizer

from starsd.errors import RequestError
from tests.scripted import byte_tokens

EOS = 256
FIRST_PIECE = 300


class ByteText:
    """A TextStream. Ids under 256 are bytes, ``EOS`` is special, others are in ``pieces``."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self.piece(token))

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < EOS else self._pieces.get(token, b"")

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteTokenizer:
    """A Tokenizer. The prompt is the contents' bytes, in order."""

    vocab_size = 512
    eos_ids = (EOS,)
    chat_template = ""

    def __init__(self, *pieces: str) -> None:
        self._pieces = {FIRST_PIECE + place: text.encode() for place, text in enumerate(pieces)}

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        answer: bool = True,
    ) -> list[int]:
        text = "".join(message["content"] for message in messages)
        if text == "refuse":
            raise RequestError("messages: the template refuses", param="messages")
        return list(text.encode())

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, tokens)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return b"<end>" if token == EOS else self.text_stream().piece(token)

    def special_id(self, text: str) -> int | None:
        return None

    def text_stream(self, *, special: bool = False) -> ByteText:
        return ByteText(self._pieces)

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return byte_tokens(vocab_size)

    def pieces(self) -> list[int]:
        return list(self._pieces)
