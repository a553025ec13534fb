"""The text side of a model: chat template, and detokenising token by token.

Loads ``tokenizer.json`` directly, so the front process never imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from llguidance import LLTokenizer
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerFast

from starsd.engine.guard import Guard, Piece
from starsd.engine.spelling import Spelling
from starsd.engine.vocabulary import grammar_tokenizer, tokenizer_file
from starsd.errors import RequestError


class HfTokenizer:
    """``starsd.engine.interface.Tokenizer`` over a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ConfigError: the folder has no usable tokenizer.json.
        """
        tokenizer_file(folder)
        self._folder = folder
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self._backend: RustTokenizer = self._tokenizer.backend_tokenizer
        self._eos_ids = _eos_ids(folder, self._tokenizer.eos_token_id)
        self._spelling = Spelling(self._backend)
        added = self._backend.get_added_tokens_decoder().items()
        self._special = {one.content: token for token, one in added if one.special}
        self._guard = Guard(self._special)

    @property
    def vocab_size(self) -> int:
        """Ids the tokenizer knows; the model's head may be wider."""
        return len(self._tokenizer)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self._eos_ids

    @property
    def chat_template(self) -> str:
        """All of them, if there are several."""
        found = self._tokenizer.chat_template or ""
        return found if isinstance(found, str) else "\n".join(found.values())

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        answer: bool = True,
    ) -> list[int]:
        """Chat template, with generation prompt where an ``answer`` is wanted, as token ids.

        Raises:
            RequestError: the template refuses these messages, or the model has none.
        """
        marked, mark = self._guard.marked([*messages, *tools])
        said, known = marked[: len(messages)], marked[len(messages) :]
        try:
            text = self._tokenizer.apply_chat_template(
                said, known or None, add_generation_prompt=answer, tokenize=False
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            raise RequestError(f"messages: {error}", param="messages") from error
        pieces = self._guard.pieces(str(text), mark)
        return [token for piece in pieces for token in self._ids(piece)]

    def _ids(self, piece: Piece) -> list[int]:
        backend = self._literal if piece.literal else self._backend
        return list(backend.encode(piece.text, add_special_tokens=False).ids)

    @cached_property
    def _literal(self) -> RustTokenizer:
        """To it no text is special. Another one, since the first is used by threads that a switch
        back and forth would surprise."""
        other = RustTokenizer.from_str(self._backend.to_str())
        other.encode_special_tokens = True
        return other

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._backend.decode(list(tokens), skip_special_tokens=False))

    def token_bytes(self, token: int) -> bytes:
        return self._spelling.of(token)

    def special_id(self, text: str) -> int | None:
        return self._special.get(text)

    def text_stream(self, *, special: bool = False) -> HfTextStream:
        return HfTextStream(self._backend, special=special)

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return grammar_tokenizer(self._folder, vocab_size)


class HfTextStream:
    """Whole characters as soon as they are certain; what was pushed last may be held back."""

    def __init__(self, backend: RustTokenizer, *, special: bool = False) -> None:
        """``special`` tokens are written out, or vanish."""
        self._backend = backend
        self._skip = not special
        self._stream = DecodeStream(skip_special_tokens=self._skip)
        self._tokens: list[int] = []
        self._released = 0

    def push(self, token: int) -> str:
        """Text released by this token: empty while a character is incomplete."""
        self._tokens.append(token)
        text = self._stream.step(self._backend, token) or ""
        self._released += len(text)
        return text

    def flush(self) -> str:
        """What the whole answer decodes to beyond the text released so far."""
        whole = self._backend.decode(self._tokens, skip_special_tokens=self._skip)
        text, self._released = whole[self._released :], len(whole)
        return text


def _eos_ids(folder: Path, own: int | None) -> tuple[int, ...]:
    """Union of what generation config, config and tokenizer call the end."""
    found = {own} if own is not None else set()
    for name in ("generation_config.json", "config.json"):
        found.update(_eos_of(folder / name))
    return tuple(sorted(found))


def _eos_of(file: Path) -> Iterator[int]:
    if not file.is_file():
        return
    value = json.loads(file.read_text("utf-8")).get("eos_token_id")
    yield from value if isinstance(value, list) else [] if value is None else [value]
