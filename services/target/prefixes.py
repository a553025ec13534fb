"""What ended requests leave in their slots, so that a chat's next turn computes only what is new.

A prefix is found by hashes of its tokens, block by block, each chained to those before and the
first to its tenant's salt. What is found counts only as far as salt and tokens are really equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from starsd.engine.kv_budget import blocks_of

BLOCK = 16
"""Tokens under one hash; a common beginning of fewer is computed again."""


class Text(Protocol):
    """``tokens`` of the tenant named by ``salt``."""

    @property
    def tokens(self) -> list[int]: ...

    @property
    def salt(self) -> str: ...


@dataclass(eq=False)
class Prefix:
    """``tokens`` whose keys and values are in ``slot``, which nobody computes in."""

    slot: int
    salt: str
    tokens: list[int]
    chain: list[int]

    @classmethod
    def of(cls, text: Text, slot: int, length: int) -> Prefix:
        tokens = text.tokens[:length]
        return cls(slot, text.salt, tokens, list(chained(tokens, text.salt)))

    @property
    def blocks(self) -> int:
        """Of KV memory."""
        return blocks_of(len(self.tokens))

    def covers(self, other: Prefix) -> bool:
        """Whether it holds all whole blocks of ``other``."""
        length = len(other.chain)
        return length <= len(self.chain) and other.chain[-1] == self.chain[length - 1]


class Prefixes:
    """Those kept, least recently used first."""

    def __init__(self) -> None:
        self.blocks = 0
        """KV blocks of all together."""
        self._kept: dict[int, Prefix] = {}
        self._by_hash: defaultdict[int, dict[int, Prefix]] = defaultdict(dict)

    @property
    def oldest(self) -> Prefix | None:
        return next(iter(self._kept.values()), None)

    def find(self, text: Text) -> tuple[Prefix | None, int]:
        """As ``closest``, of all that share a block or more."""
        alike: Iterable[Prefix] = ()
        for key in chained(text.tokens, text.salt):
            if key not in self._by_hash:
                break
            alike = self._by_hash[key].values()
        prefix, length = closest(text, alike)
        return (prefix, length) if length >= BLOCK else (None, 0)

    def covered(self, prefix: Prefix) -> list[Prefix]:
        """Those of which ``prefix`` holds as much."""
        return [kept for kept in self._kept.values() if prefix.covers(kept)]

    def add(self, prefix: Prefix) -> None:
        """A prefix of a block or more, as the one used last."""
        self._kept[prefix.slot] = prefix
        self.blocks += prefix.blocks
        for key in prefix.chain:
            self._by_hash[key][prefix.slot] = prefix

    def touch(self, prefix: Prefix) -> None:
        """It is used now."""
        self._kept[prefix.slot] = self._kept.pop(prefix.slot)

    def cut(self, prefix: Prefix, length: int) -> None:
        """Forget its tokens from ``length`` on."""
        self.blocks -= prefix.blocks - blocks_of(length)
        for key in prefix.chain[length // BLOCK :]:
            self._forget(key, prefix.slot)
        del prefix.chain[length // BLOCK :], prefix.tokens[length:]
        if not prefix.chain:
            del self._kept[prefix.slot]

    def _forget(self, key: int, slot: int) -> None:
        del self._by_hash[key][slot]
        if not self._by_hash[key]:
            del self._by_hash[key]


def chained(tokens: list[int], salt: str) -> Iterator[int]:
    """A hash per whole block, of all tokens to its end."""
    key = hash(salt)
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        key = hash((key, *tokens[start : start + BLOCK]))
        yield key


T = TypeVar("T", bound=Text)


def closest(text: Text, others: Iterable[T]) -> tuple[T | None, int]:
    """The first of those of its tenant that begin most like ``text``, and how many tokens they
    share: not its last one, whose logits are wanted."""
    best: T | None = None
    most, whole = 0, len(text.tokens) - 1
    for other in others:
        if other.salt != text.salt:
            continue
        shared = _common(text.tokens, other.tokens, min(whole, len(other.tokens)))
        if shared > most:
            best, most = other, shared
        if most == whole:
            break
    return best, most


def _common(first: list[int], second: list[int], most: int) -> int:
    """Length of the common beginning, at most ``most``."""
    if first[:most] == second[:most]:
        return most
    return next(index for index in range(most) if first[index] != second[index])
