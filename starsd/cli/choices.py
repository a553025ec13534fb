"""Options that are lists, separated by commas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from starsd.errors import ConfigError


def choices(option: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    """Raises ConfigError for a word that is none of ``known``."""
    words = tuple(given.split(","))
    if unknown := [word for word in words if word not in known]:
        raise ConfigError(f"{option} {','.join(unknown)}: want of {','.join(known)}", param=option)
    return words


def numbers(option: str, given: str) -> tuple[int, ...]:
    """Positive ones. Raises ConfigError."""
    words = given.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise ConfigError(f"{option} {given!r}: write it like 1,16", param=option)
    return tuple(map(int, words))


def decimals(option: str, given: str) -> tuple[float, ...]:
    """None below 0. Raises ConfigError."""
    try:
        found = tuple(map(float, given.split(",")))
    except ValueError:
        found = (-1.0,)
    if not all(0 <= number < math.inf for number in found):
        raise ConfigError(f"{option} {given!r}: write it like 0,0.7", param=option)
    return found
