"""What a model's token ids mean: as a fingerprint, and for grammars. For step loops, which handle
no text."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from starsd.errors import ConfigError


def tokenizer_file(folder: Path) -> Path:
    """Raises ConfigError if the checkpoint has none."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ConfigError(f"{folder}: no tokenizer.json", param="STARSD_MODEL")
    return file


def vocabulary_fingerprint(folder: Path) -> str:
    """16 hex digits over vocabulary, merges and special tokens: equal exactly when the same text
    means the same ids, however the file is written.

    Raises:
        ConfigError: no tokenizer.json.
    """
    tokenizer = Tokenizer.from_file(str(tokenizer_file(folder)))
    state = json.loads(tokenizer.to_str())
    parts = {
        "vocab": sorted(tokenizer.get_vocab(with_added_tokens=True).items()),
        "merges": state["model"].get("merges"),
        "special": sorted(
            (token["id"], token["content"]) for token in state["added_tokens"] if token["special"]
        ),
    }
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def grammar_tokenizer(folder: Path, vocab_size: int) -> LLTokenizer:
    """The tokens as grammars see them, ``vocab_size`` or more; takes a third of a second.

    Raises:
        ConfigError: no tokenizer.json, or one that grammars cannot use.
    """
    file = tokenizer_file(folder)
    known = Tokenizer.from_file(str(file)).get_vocab_size(with_added_tokens=True)
    try:
        return LLTokenizer(str(file), n_vocab=max(known, vocab_size))
    except ValueError as error:
        raise ConfigError(
            f"{file}: of no use to grammars: {error}", param="STARSD_MODEL"
        ) from error
