"""Token ids on the wire: little-endian u32 bytes, and digests of prefixes of them."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence

from starsd.errors import ProtocolError

_SWAP = sys.byteorder == "big"


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids to ``4 * len(tokens)`` bytes."""
    packed = array("I", tokens)
    if _SWAP:
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(data: bytes) -> list[int]:
    """The inverse of ``pack_tokens``.

    Raises:
        ProtocolError: the length is no multiple of four.
    """
    if len(data) % 4:
        raise ProtocolError(f"tokens: {len(data)} bytes is not a whole number of u32 ids")
    packed = array("I", data)
    if _SWAP:
        packed.byteswap()
    return packed.tolist()


def prefix_digest(tokens: Sequence[int]) -> bytes:
    """Eight bytes that identify a prefix between target and hub (blake2b; about 1 us per KB)."""
    return hashlib.blake2b(pack_tokens(tokens), digest_size=8).digest()


EMPTY_DIGEST = prefix_digest(())
