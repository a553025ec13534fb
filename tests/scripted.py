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
from llguidance import LLTokenizer, TokenizerWrapper

from starsd.engine.interface import Features, Logits, Row, SlotState
from starsd.engine.kv_budget import blocks_of, plan_kv
from starsd.errors import EngineError, RequestError
from starsd.settings.model import ModelSettings

EOS, USER, ASSISTANT, SYSTEM = 256, 257, 258, 259
VOCAB = 260
_NAMES = (b"<end>", b"<user>", b"<assistant>", b"<system>")
_ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM}
_SURE = 30.0
FAULTY_AT = 5
HIDDEN = 4
"""Numbers of a hidden state."""
_STATE_SALT = 1000
POSITION_BYTES = 1024
"""What a position takes of ``STARSD_KV_MEMORY``."""


class ByteTokenizer:
    """One token per UTF-8 byte, one per role, one end."""

    vocab_size = VOCAB
    eos_ids = (EOS,)
    chat_template = ""

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        answer: bool = True,
    ) -> list[int]:
        """Per message its role and its bytes; then ``ASSISTANT``. Raises RequestError."""
        tokens: list[int] = []
        for message in messages:
            if message["role"] not in _ROLES:
                raise RequestError(f"unknown role {message['role']!r}", param="messages")
            tokens += [_ROLES[message["role"]], *str(message["content"]).encode()]
        return [*tokens, ASSISTANT] if answer else tokens

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, tokens)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < EOS else _NAMES[token - EOS]

    def special_id(self, text: str) -> int | None:
        name = text.encode()
        return EOS + _NAMES.index(name) if name in _NAMES else None

    def text_stream(self, *, special: bool = False) -> ByteTextStream:
        return ByteTextStream()

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return byte_tokens(vocab_size)


class _ByteTokens:
    """What ``llguidance.TokenizerWrapper`` asks for."""

    bos_token_id = None

    def __init__(self, vocab_size: int) -> None:
        names = [f"<|{token}|>".encode() for token in range(EOS, vocab_size)]
        self.tokens = [*(bytes([byte]) for byte in range(EOS)), *names]
        self.special_token_ids = [*range(EOS, vocab_size)]
        self.eos_token_id = EOS

    def __call__(self, text: bytes | str) -> list[int]:
        return [*(text.encode() if isinstance(text, str) else text)]


def byte_tokens(vocab_size: int = VOCAB) -> LLTokenizer:
    """``ByteTokenizer`` as grammars see it."""
    return LLTokenizer(TokenizerWrapper(_ByteTokens(vocab_size)))


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

    def vocabulary(self) -> str:
        return "00000000000b17e5"

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return byte_tokens(vocab_size)


class ScriptedRunner:
    """``Runner`` over a ``ScriptedModel``; counts what it does, for tests to read.

    Slots that together hold more than ``kv_blocks`` are an error.
    """

    state = SlotState.ROLLS_BACK

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        slots, self.max_length = model.settings.max_sequences, model.settings.max_length
        memory = model.settings.kv_memory
        self.slots, self.kv_blocks = plan_kv(
            memory, POSITION_BYTES, slots, self.max_length, lazily=True
        )
        self.vocab_size = VOCAB
        self.revision = f"scripted-{type(model).__name__}"
        self.fingerprint = f"{self.revision}/none"
        self.held: list[list[int]] = [[] for _ in range(self.slots)]
        self.forwards = 0
        self.tokens = 0
        self._taps: tuple[int, ...] = ()
        self._features: list[Features] = []

    def parts(self) -> dict[str, float]:
        return {}

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        if self._model.step_s:
            time.sleep(self._model.step_s)
        if len({row.slot for row in rows}) < len(rows):
            raise EngineError("two rows share a slot")
        self.forwards += 1
        self.tokens += sum(len(row.tokens) for row in rows)
        self._features = [self._states(row) for row in rows] if self._taps else []
        logits = [self._row(row) for row in rows]
        blocks = sum(blocks_of(len(held)) for held in self.held)
        if blocks > self.kv_blocks:
            raise EngineError(f"{blocks} blocks are held, {self.kv_blocks} may be")
        return logits

    def tap(self, layers: Sequence[int]) -> None:
        self._taps = tuple(layers)

    def features(self) -> list[Features]:
        return self._features

    def release(self, slot: int, length: int = 0) -> None:
        self.held[slot] = self.held[slot][:length]

    def copy(self, source: int, slot: int, length: int) -> None:
        held = self.held[source][:length]
        if len(held) < length:
            raise EngineError(f"slot {source} holds {len(held)} tokens, not {length}")
        self.held[slot] = held

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        held = self.held[slot]
        held[start:] = [held[start + step] for step in path]

    def _states(self, row: Row) -> Features:
        prefix = self.held[row.slot][: row.start]
        paths = [row.path(index) for index in range(len(row.tokens))]
        states = [state(prefix + path, layer) for path in paths for layer in self._taps]
        return np.concatenate(states).reshape(len(paths), -1)

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
        paths = [row.path(index) for index in range(first, len(row.tokens))]
        found = [self._model.logits(prefix + path) for path in paths]
        return np.array(found, dtype=np.float32).reshape(row.want, VOCAB)


def state(history: Sequence[int], layer: int) -> Features:
    """``[HIDDEN]`` after ``history``: another layer, token or position, other bits."""
    bits = _hash(history, _STATE_SALT + layer).to_bytes(2 * HIDDEN, "little")
    return np.frombuffer(bits, dtype="<u2").astype(np.uint16)


class GrowingRunner(ScriptedRunner):
    """Like a recurrent model's: a slot goes on where it ends, or starts anew."""

    state = SlotState.GROWS

    def _row(self, row: Row) -> Logits:
        if row.start not in (0, len(self.held[row.slot])):
            raise EngineError(f"slot {row.slot} cannot be rolled back to {row.start}")
        return super()._row(row)


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


class GrowingModel(HashModel):
    """``HashModel``'s text, from a state that does not roll back."""

    def runner(self) -> GrowingRunner:
        return GrowingRunner(self)


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
        return _certain(self.answer(bytes(prompt[begin + 1 :])), done)

    def answer(self, message: bytes) -> bytes:
        return message


class FaultyModel(EchoModel):
    """Breaks after ``FAULTY_AT`` tokens of an answer that would begin with ``boom``."""

    def logits(self, history: Sequence[int]) -> Logits:
        done = _answered(history)
        prompt = history[: len(history) - done - 1]
        if done == FAULTY_AT and bytes(prompt[1:5]) == b"boom":
            raise EngineError(f"broken at token {FAULTY_AT}, as told")
        return super().logits(history)


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
