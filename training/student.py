"""The seam between trainer and what it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class Student(nn.Module, ABC):
    """``draft_ids [vocab]`` are the target's ids of the draft vocabulary, ascending."""

    draft_ids: Tensor
    steps: int
    """Tokens it guesses one after another from each place in training."""

    @property
    @abstractmethod
    def head(self) -> Tensor:
        """``[vocab, hidden]``, from states to draft logits."""

    @abstractmethod
    def drafted(self, features: Tensor, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """What ``head`` reads, ``[b, t - 2 - s, hidden]`` for each step ``s``: entry ``i`` guesses
        what follows ``tokens[:, i + 1 + s]``.

        ``features [b, t, taps * hidden]`` of ``tokens [b, t]``, of which ``lengths [b]`` count.
        """

    @abstractmethod
    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights by name, and ``config.json``, in the layout that others read too."""
