"""How an API words one choice of an answer: as chunks while it comes, or as a whole.

A writer takes in text and log probabilities as they come, and gives out what it has taken in. Log
probabilities wait for the text that their tokens release.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from starsd.protocol.events import Delta, Done, Likelihood, TokenLogprobs


class Writer(abc.ABC):
    """One choice. What its methods return is for msgspec to encode."""

    def __init__(self, index: int, *, logprobs: bool) -> None:
        self.index = index
        self._wants_logprobs = logprobs
        self._text: list[str] = []
        self._logprobs: list[TokenLogprobs] = []

    def take(self, part: Delta | Done) -> None:
        """What came of this choice."""
        if part.text:
            self._text.append(part.text)
        if isinstance(part, Delta):
            self._logprobs += part.logprobs or ()

    def _given(self) -> tuple[str, list[TokenLogprobs] | None]:
        """Everything taken in and not given out yet."""
        text, logprobs = "".join(self._text), self._logprobs
        self._text, self._logprobs = [], []
        return text, logprobs if self._wants_logprobs else None

    @abc.abstractmethod
    def opening(self) -> Any | None:
        """The first chunk's choice, if the API has one before any text."""

    @abc.abstractmethod
    def pieces(self) -> Sequence[Any]:
        """The choices of chunks with what there is to show."""

    @abc.abstractmethod
    def last(self, reason: str) -> Any:
        """The last chunk's choice, with what is left."""

    @abc.abstractmethod
    def whole(self, reason: str) -> Any:
        """All of it."""


def spelt(token: Likelihood) -> str:
    """A token as text; bytes that are no whole characters become U+FFFD."""
    return token.token.decode(errors="replace")
