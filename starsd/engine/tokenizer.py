"""The text side of a model: chat template, fingerprint, and detokenising token by token.

Loads ``tokenizer.json`` directly, so the front process never imports torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerFast

from starsd.errors import ConfigError, RequestError


class HfTokenizer:
    """``starsd.engine.interface.Tokenizer`` over a checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ConfigError: the folder has no usable tokenizer.json.
        """
        if not (folder / "tokenizer.json").is_file():
            raise ConfigError(f"{folder}: no tokenizer.json", param="STARSD_MODEL")
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self._backend: RustTokenizer = self._tokenizer.backend_tokenizer
        self._fingerprint = _fingerprint(self._backend)
        self._eos_ids = _eos_ids(folder, self._tokenizer.eos_token_id)

    @property
    def fingerprint(self) -> str:
        """16 hex digits over vocabulary, merges and special tokens."""
        return self._fingerprint

    @property
    def vocab_size(self) -> int:
        """Ids the tokenizer knows; the model's head may be wider."""
        return len(self._tokenizer)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self._eos_ids

    def encode_chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Chat template with generation prompt, as token ids.

        Raises:
            RequestError: the template refuses these messages, or the model has none.
        """
        try:
            ids = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_dict=False
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            raise RequestError(f"messages: {error}", param="messages") from error
        return [int(token) for token in ids]

    def text_stream(self) -> HfTextStream:
        return HfTextStream(self._backend)


class HfTextStream:
    """Whole characters as soon as they are certain; what was pushed last may be held back."""

    def __init__(self, backend: RustTokenizer) -> None:
        self._backend = backend
        self._stream = DecodeStream(skip_special_tokens=True)
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
        whole = self._backend.decode(self._tokens, skip_special_tokens=True)
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


def _fingerprint(backend: RustTokenizer) -> str:
    """Equal exactly when the same text means the same ids: order of JSON keys does not matter."""
    state = json.loads(backend.to_str())
    parts = {
        "vocab": sorted(backend.get_vocab(with_added_tokens=True).items()),
        "merges": state["model"].get("merges"),
        "special": sorted(
            (token["id"], token["content"]) for token in state["added_tokens"] if token["special"]
        ),
    }
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()
