"""What an answer with tool calls is made of, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """For the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call begins: the arguments follow."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A fragment of a call's arguments: JSON as the model wrote it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that had begun came to nothing. ``raw`` is all of it, markers included; ``rest`` the
    part that is in none of its ``Arguments``."""

    index: int
    raw: str
    rest: str


Piece = Text | Called | Arguments | Broken
