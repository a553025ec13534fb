"""Which target gets a request: the one that has computed its beginning, load permitting.

A session has a home, where it stays as long as that lives. Without one, a request goes where a
beginning of it was answered, as far as this gateway remembers. Gateways share no memory, so where
a session begins is a function of its id and the live targets (rendezvous hashing).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import msgspec

from services.gateway.pool import Pool, Target
from starsd.protocol.events import Generate

MAX_REMEMBERED = 65_536
"""Beginnings and sessions, the least recently answered go first."""
PIECE_BYTES = 1024
"""A beginning ends with a message, or after so many bytes of one."""
MAX_PIECES = 64
"""How far into a request beginnings are told apart."""
WORTH_BYTES = 256
"""Shorter beginnings are computed anywhere in no time."""
WORTH_SHARE = 0.5
"""Of a request, too, so that a system prompt does not gather all chats in one place."""


class Reason(StrEnum):
    """Why a target was chosen."""

    SESSION = "session"
    PREFIX = "prefix"
    LOAD = "load"


class Choice(NamedTuple):
    target: Target
    reason: Reason


class Router:
    """The pool's choice, and where that is not clearly busier the target that knows the text."""

    def __init__(self, pool: Pool, margin: float) -> None:
        """``margin``: requests per slot that count as clearly busier."""
        self._pool = pool
        self._margin = margin
        self._urls: dict[bytes, str] = {}

    def choose(self, request: Generate, but: Iterable[Target] = ()) -> Choice:
        """As ``Pool.choose``."""
        fit = self._pool.fit(request.model, but)
        usual = self._pool.lighter(fit)
        here = {target.url: target for target in fit}
        if home := here.get(self._urls.get(request.session.encode(), "")):
            return Choice(home, Reason.SESSION)
        if request.session:
            choice = Choice(_rendezvous(request.session, fit), Reason.SESSION)
        elif holder := here.get(self._holder(request)):
            choice = Choice(holder, Reason.PREFIX)
        else:
            return Choice(usual, Reason.LOAD)
        busier = choice.target.load > usual.load + self._margin
        return Choice(usual, Reason.LOAD) if busier else choice

    def answered(self, request: Generate, target: Target) -> None:
        """A target has begun to answer."""
        keys = [key for key, _ in _beginnings(request)]
        for key in [*keys, request.session.encode()] if request.session else keys:
            self._urls.pop(key, None)
            self._urls[key] = target.url
        for key in list(islice(self._urls, max(0, len(self._urls) - MAX_REMEMBERED))):
            del self._urls[key]

    def _holder(self, request: Generate) -> str:
        """Where the longest beginning that is worth it was answered, or nowhere."""
        found, known, length = "", 0, 0
        for key, length in _beginnings(request):
            if url := self._urls.get(key):
                found, known = url, length
        return found if known >= max(WORTH_BYTES, WORTH_SHARE * length) else ""


def _rendezvous(session: str, targets: Sequence[Target]) -> Target:
    """The same for every gateway; only sessions of a target that goes or comes move."""
    return max(targets, key=lambda target: _hash(session, target.url).digest())


def _beginnings(request: Generate) -> Iterator[tuple[bytes, int]]:
    """A digest of each, of its tenant and model too, and its length."""
    digest, length = _hash(request.salt, request.model), 0
    for piece in islice(_pieces(request), MAX_PIECES):
        digest.update(piece)
        length += len(piece)
        yield digest.digest(), length


def _pieces(request: Generate) -> Iterator[bytes]:
    for part in (request.prompt, *request.messages):
        if part is not None:
            text = msgspec.json.encode(part, order="deterministic")
            for start in range(0, len(text), PIECE_BYTES):
                yield text[start : start + PIECE_BYTES]


def _hash(*texts: str) -> hashlib.blake2b:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16)
