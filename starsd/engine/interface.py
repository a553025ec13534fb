"""The seam between step loops and whatever computes logits: the torch runner, or a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from starsd.settings.model import ModelSettings

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Logits = npt.NDArray[np.float32]
"""[rows, vocabulary], before any processing."""

Features = npt.NDArray[np.uint16]
"""[rows, taps * hidden], bfloat16 by its bits: the target's hidden states, tap after tap."""
States = npt.NDArray[np.float32]
"""[rows, hidden] of a draft head: fused features of the target, or its own guesses of the next."""

KV_BLOCK = 64
"""Positions by which KV memory is counted."""


@dataclass(frozen=True)
class Row:
    """One sequence's part of a ragged forward.

    ``tokens`` take the positions from ``start`` on; the slot's state before ``start`` is kept,
    anything after it is overwritten, so rolling back is starting lower (where ``Runner.state``
    allows it). Logits are returned for
    the last ``want`` tokens. ``parents`` gives each token's parent as an index into ``tokens``
    (-1: the token before ``start``) for tree proposals; None is a chain.
    """

    slot: int
    tokens: Sequence[int]
    start: int
    want: int = 1
    parents: Sequence[int] | None = None

    def path(self, index: int) -> list[int]:
        """Tokens from ``start`` to ``index``: all of a chain, the ancestors in a tree."""
        if self.parents is None:
            return list(self.tokens[: index + 1])
        found: list[int] = []
        while index >= 0:
            found.append(self.tokens[index])
            index = self.parents[index]
        return found[::-1]


class SlotState(Enum):
    """Where a row may start, and so what a step loop may do with a slot."""

    ROLLS_BACK = auto()
    """At any length the slot has had."""
    UNDOES = auto()
    """Where the last row ended or, if it wanted more than one logit, anywhere within it; or at 0.
    Enough for a target, which takes back what it has not accepted, not for a draft."""
    GROWS = auto()
    """Where the last row ended, or at 0: the state is a sum over the text, which nothing undoes."""
    STEPS = auto()
    """Likewise, and a row that starts higher than 0 costs a forward a token: prompts come whole."""

    @property
    def verifies(self) -> bool:
        """Whether wrong proposals can be taken back."""
        return self in (SlotState.ROLLS_BACK, SlotState.UNDOES)


class Runner(Protocol):
    """Holds the model and its KV slots; a step loop owns it alone."""

    @property
    def state(self) -> SlotState: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_length(self) -> int:
        """Positions per slot."""

    @property
    def slots(self) -> int: ...

    @property
    def kv_blocks(self) -> int:
        """Blocks of ``KV_BLOCK`` positions that all slots together may hold; at least what one
        sequence of ``max_length`` takes. The owner keeps count."""

    @property
    def fingerprint(self) -> str:
        """Revision, dtype, quantisation, arithmetic, noise version: equal means the same text."""

    @property
    def revision(self) -> str:
        """Hash of the weights."""

    def parts(self) -> dict[str, float]:
        """Seconds that all forwards spent on matrices, attention, cache and elementwise; empty
        where nobody counts them."""

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """One forward over all rows; per row ``[want, vocab_size]`` logits (valid until the next
        call). Raises EngineError."""

    def tap(self, layers: Sequence[int]) -> None:
        """From now on keep hidden states of every forward for ``features``: ``0`` is the embedding,
        ``i`` what layer ``i`` (from 1) leaves, the number of layers that state normalised, as the
        head reads it (transformers' ``hidden_states``). Raises ConfigError: no such layer, or an
        architecture that gives none."""

    def features(self) -> list[Features]:
        """Of the last forward, per row ``[len(tokens), taps * hidden]``; valid until the next."""

    def release(self, slot: int, length: int = 0) -> None:
        """Give the slot's memory back, but for its first ``length`` positions; a next row starts
        there or before. Without ``SlotState.ROLLS_BACK`` all of it goes, and it starts at 0."""

    def copy(self, source: int, slot: int, length: int) -> None:
        """Take over the first ``length`` positions of the slot ``source``, bit by bit."""

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        """After a tree row at ``start``: keep the accepted ``path`` (indices into its tokens, in
        order), so that it lies at ``start, start + 1, ...`` like a chain."""


@dataclass(frozen=True)
class HeadRow:
    """One sequence's part of a draft head's forward.

    Position ``i`` of a head pairs the target's state at ``i`` with the token at ``i + 1`` and
    predicts the token at ``i + 2``. ``tokens[j]`` follows ``states[j]``; both take
    the head's positions from ``start`` on. ``want`` and ``parents`` as in ``Row``.
    """

    slot: int
    tokens: Sequence[int]
    states: States
    start: int
    want: int = 1
    parents: Sequence[int] | None = None


class HeadOutput(NamedTuple):
    """For each wanted token: logits ``[want, draft vocabulary]`` and the head's guess of the next
    state ``[want, hidden]``."""

    logits: Logits
    states: States


class HeadRunner(Protocol):
    """A draft head over the target's hidden states (EAGLE), with its own KV slots."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The taps it reads, as of ``Runner.tap``."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def draft_ids(self) -> npt.NDArray[np.int64]:
        """The target's ids of the draft vocabulary, ascending."""

    @property
    def vocab_size(self) -> int:
        """Of the target: ids that a prefix may contain."""

    @property
    def max_length(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def kv_blocks(self) -> int: ...

    @property
    def revision(self) -> str: ...

    @property
    def target_revision(self) -> str:
        """The weights whose hidden states it reads."""

    def parts(self) -> dict[str, float]: ...

    def fuse(self, features: Features) -> States:
        """``[n, taps * hidden]`` to ``[n, hidden]``."""

    def forward(self, rows: Sequence[HeadRow]) -> list[HeadOutput]:
        """One forward over all rows; valid until the next call. Raises EngineError."""

    def release(self, slot: int) -> None: ...


class Tokenizer(Protocol):
    """The text side of a model; owned by the front."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    @property
    def chat_template(self) -> str:
        """Its text; empty if the model has none."""

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        answer: bool = True,
    ) -> list[int]:
        """Chat template, with generation prompt where an ``answer`` is wanted. Special tokens are
        the template's alone: what looks like one in a message or tool is text. Raises RequestError
        if the template refuses."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """``text``, in which special tokens may be written out; ``special`` adds those that
        begin or end a text of this model."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Their text, special tokens written out."""

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for: its part of the text's UTF-8, or a special token's name."""

    def special_id(self, text: str) -> int | None:
        """The special token of this name."""

    def text_stream(self, *, special: bool = False) -> TextStream:
        """A fresh incremental detokenizer; with ``special`` it writes special tokens out."""

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        """As of ``Model``."""


class TextStream(Protocol):
    """Token ids in, whole characters out."""

    def push(self, token: int) -> str:
        """Text released by this token: empty while a character is incomplete."""

    def flush(self) -> str:
        """What an incomplete tail turns into at the end of the answer."""


class Model(Protocol):
    """What a ``scripted`` class provides; ``starsd.engine.loading`` does it for real models.

    Constructed with the service's settings.
    """

    def __init__(self, settings: ModelSettings) -> None: ...

    def runner(self) -> Runner: ...

    def tokenizer(self) -> Tokenizer: ...

    def vocabulary(self) -> str:
        """Fingerprint of what the token ids mean; cheaper than the tokenizer."""

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        """The tokens as grammars see them, at least so many."""
