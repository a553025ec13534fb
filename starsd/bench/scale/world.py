"""What emulated processes replay: recorded answers, what a draft knew of them, and what steps cost.

One file for all of them; a process finds it by its ``model`` setting.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from starsd.errors import ConfigError
from starsd.plan.costs import Costs


@dataclass(frozen=True)
class Text:
    """A target's greedy answer. ``ranks[i]`` is the draft's rank of its token ``i``, had it known
    all before it (0: its first choice)."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    ranks: tuple[int, ...]

    @cached_property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.answer]


@dataclass(frozen=True)
class World:
    """``verify_factors`` are single steps of the real target over their median. Texts of another
    ``revision`` of the target are another world; ``vocabulary`` is what its hubs and targets must
    share."""

    texts: tuple[Text, ...]
    eos: tuple[int, ...]
    vocab_size: int
    vocabulary: str
    revision: str
    costs: Costs
    verify_factors: tuple[float, ...] = (1.0,)

    @property
    def ranks(self) -> list[tuple[int, ...]]:
        return [text.ranks for text in self.texts]

    @property
    def longest(self) -> int:
        return max(len(text.tokens) for text in self.texts)

    def find(self, history: list[int]) -> Text | None:
        """The text that begins, or goes on, like this."""
        for text in self.texts:
            if text.tokens[: len(history)] == history:
                return text
        return None


def write(world: World, path: Path) -> None:
    path.write_text(json.dumps(dataclasses.asdict(world)), "utf-8")


def read(path: Path) -> World:
    """Raises ConfigError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=World)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: no recorded world ({error})", param="STARSD_MODEL") from error
