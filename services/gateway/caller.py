"""Who asks: whose requests may share work, and which of them belong together."""

from __future__ import annotations

import hashlib

import msgspec
from starlette.datastructures import Headers

from starsd.protocol.events import Generate

SESSION_HEADER = "X-Session-Id"


def with_caller(request: Generate, headers: Headers) -> Generate:
    """With the salt of its API key, if it has one, and the client's session, its own for each key.
    Digests: a target learns neither."""
    salt = _digest("salt", headers.get("Authorization", ""))
    session = headers.get(SESSION_HEADER, "")
    return msgspec.structs.replace(
        request, salt=salt, session=session and _digest("session", salt + session)
    )


def _digest(kind: str, text: str) -> str:
    """Hexadecimal, for one purpose; empty for what is empty."""
    person = kind.encode()
    return text and hashlib.blake2b(text.encode(), digest_size=16, person=person).hexdigest()
