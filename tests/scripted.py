"""Scripted models (no torch): next-token distributions that are pure functions of the history.

Load one with ``STARSD_SCRIPTED=tests.scripted:EchoModel``. The runner keeps each slot's tokens by
position, as a KV cache does, so a wrong rollback, position or slot changes the text or raises.

Knobs, by environment (without the STARSD_ prefix, which only known settings may have):
``SCRIPTED_STEP_S`` seconds per forward, ``SCRIPTED_TEXT`` the answer of ``ScriptModel``,
``SCRIPTED_WRONG`` share of histories on which ``DriftModel`` differs from ``HashModel``.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from starsd.engine.interface import Logits, Row
from starsd.errors import EngineError, RequestError
from starsd.settings import ModelSettings

EOS, USER, ASSISTANT, SYSTEM = 256, 257, 258, 259
VOCAB = 260
_ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
_SURE = 30.0


class ByteTokenizer:
    """One token per UTF-8 byte, one per role, one end."""

    fingerprint = "00000000000b17e5"
    vocab_size = VOCAB
    eos_ids = (EOS,)

    def encode_chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Per message its role and its bytes; then ``ASSISTANT``. Raises RequestError."""
        tokens: list[int] = []
        for message in messages:
            if message["role"] not in _ROLES:
                raise RequestError(f"unknown role {message['role']!r}", param="messages")
            tokens += [_ROLES[message["role"]], *str(message["content"]).encode()]
        return [*tokens, ASSISTANT]

    def text_stream(self) -> ByteTextStream:
        return ByteTextStream()


class ByteTextStream:
    """Holds back an incomplete character."""

    def __init__(self) -> None:
        self._held = b""

    def push(self, token: int) -> str:
        if token >= 256:
            return ""
        self._held += bytes([token])
        try:
            text = self._held.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            text = self._held.decode(errors="replace")
        self._held = b""
        return text

    def flush(self) -> str:
        text, self._held = self._held.decode(errors="replace"), b""
        return text


class ScriptedModel:
    """Base of all: subclasses say what follows a history."""

    step_s = 0.0

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.step_s = float(os.environ.get("SCRIPTED_STEP_S", self.step_s))

    def logits(self, history: Sequence[int]) -> Logits:
        """``[VOCAB]`` for the token after ``history``."""
        raise NotImplementedError

    def runner(self) -> ScriptedRunner:
        return ScriptedRunner(self)

    def tokenizer(self) -> ByteTokenizer:
        return ByteTokenizer()


class ScriptedRunner:
    """``Runner`` over a ``ScriptedModel``; counts what it does, for tests to read."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self.slots = model.settings.max_sequences
        self.max_length = model.settings.max_length
        self.vocab_size = VOCAB
        self.revision = f"scripted-{type(model).__name__}"
        self.fingerprint = f"{self.revision}/none"
        self.held: list[list[int]] = [[] for _ in range(self.slots)]
        self.forwards = 0
        self.tokens = 0

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        if self._model.step_s:
            time.sleep(self._model.step_s)
        if len({row.slot for row in rows}) < len(rows):
            raise EngineError("two rows share a slot")
        self.forwards += 1
        self.tokens += sum(len(row.tokens) for row in rows)
        return [self._row(row) for row in rows]

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        held = self.held[slot]
        held[start:] = [held[start + step] for step in path]

    def _row(self, row: Row) -> Logits:
        """Raises EngineError for a gap before ``start``, a bad token, or no room."""
        held = self.held[row.slot]
        if row.start > len(held):
            raise EngineError(
                f"slot {row.slot} holds {len(held)} tokens, row starts at {row.start}"
            )
        if not row.tokens or row.start + len(row.tokens) > self.max_length:
            raise EngineError(f"{len(row.tokens)} tokens at {row.start} do not fit")
        if min(row.tokens) < 0 or max(row.tokens) >= VOCAB:
            raise EngineError(f"a token outside the vocabulary of {VOCAB}")
        prefix = held[: row.start]
        self.held[row.slot] = [*prefix, *row.tokens]
        first = len(row.tokens) - row.want
        paths = [_path(row, index) for index in range(first, len(row.tokens))]
        found = [self._model.logits(prefix + path) for path in paths]
        return np.array(found, dtype=np.float32).reshape(row.want, VOCAB)


class HashModel(ScriptedModel):
    """Random-looking distributions of about 3 bits, fixed by the whole history; rarely ends."""

    salt = 0

    def logits(self, history: Sequence[int]) -> Logits:
        rng = np.random.default_rng(_hash(history, self.salt))
        logits = rng.normal(0.0, 2.6, VOCAB).astype(np.float32)
        logits[EOS:] = -_SURE
        return logits


class DriftModel(HashModel):
    """A draft for ``HashModel`` that is wrong after some histories, always the same ones."""

    wrong = 0.3

    def logits(self, history: Sequence[int]) -> Logits:
        wrong = float(os.environ.get("SCRIPTED_WRONG", self.wrong))
        if _hash(history, 1) / 2**64 >= wrong:
            return super().logits(history)
        rng = np.random.default_rng(_hash(history, 2))
        return rng.normal(0.0, 2.6, VOCAB).astype(np.float32)


class ScriptModel(ScriptedModel):
    """Answers every request with ``text``, then ends."""

    text = "All stars are distant suns."

    def logits(self, history: Sequence[int]) -> Logits:
        answer = os.environ.get("SCRIPTED_TEXT", self.text).encode()
        return _certain(answer, _answered(history))


class EchoModel(ScriptedModel):
    """Repeats the last message, then ends."""

    def logits(self, history: Sequence[int]) -> Logits:
        done = _answered(history)
        prompt = history[: len(history) - done - 1]
        begin = max((i for i, token in enumerate(prompt) if token > EOS), default=-1)
        return _certain(bytes(prompt[begin + 1 :]), done)


def _path(row: Row, index: int) -> list[int]:
    """Tokens from ``row.start`` to ``index``: all of a chain, the ancestors in a tree."""
    if row.parents is None:
        return list(row.tokens[: index + 1])
    path: list[int] = []
    while index >= 0:
        path.append(row.tokens[index])
        index = row.parents[index]
    return path[::-1]


def _answered(history: Sequence[int]) -> int:
    """Tokens since the last ``ASSISTANT`` mark (all of them without one)."""
    for done, token in enumerate(reversed(history)):
        if token == ASSISTANT:
            return done
    return len(history)


def _certain(answer: bytes, done: int) -> Logits:
    logits = np.zeros(VOCAB, dtype=np.float32)
    logits[answer[done] if done < len(answer) else EOS] = _SURE
    return logits


def _hash(history: Sequence[int], salt: int) -> int:
    data = np.array([salt, *history], dtype=np.uint32).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
