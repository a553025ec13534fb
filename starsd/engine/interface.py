"""The seam between step loops and whatever computes logits: the torch runner, or a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from starsd.settings import ModelSettings

Logits = npt.NDArray[np.float32]
"""[rows, vocabulary], before any processing."""


@dataclass(frozen=True)
class Row:
    """One sequence's part of a ragged forward.

    ``tokens`` take the positions from ``start`` on; the slot's state before ``start`` is kept,
    anything after it is overwritten, so rolling back is starting lower. Logits are returned for
    the last ``want`` tokens. ``parents`` gives each token's parent as an index into ``tokens``
    (-1: the token before ``start``) for tree proposals; None is a chain.
    """

    slot: int
    tokens: Sequence[int]
    start: int
    want: int = 1
    parents: Sequence[int] | None = None


class Runner(Protocol):
    """Holds the model and its KV slots; a step loop owns it alone."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_length(self) -> int:
        """Positions per slot."""

    @property
    def slots(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Revision, dtype, quantisation, arithmetic, noise version: equal means the same text."""

    @property
    def revision(self) -> str:
        """Hash of the weights."""

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """One forward over all rows; per row ``[want, vocab_size]`` logits (valid until the next
        call). Raises EngineError."""


class Tokenizer(Protocol):
    """The text side of a model; owned by the front."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    def encode_chat(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Chat template with generation prompt. Raises RequestError if the template refuses."""

    def text_stream(self) -> TextStream:
        """A fresh incremental detokenizer."""


class TextStream(Protocol):
    """Token ids in, whole characters out; special tokens vanish."""

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
