"""What both sides know of streams: their limits, and how Redis writes their entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from starsd.protocol.keys import FIELD

KEY_TTL_MS = 60_000
"""Life of Q_in, sticky queues and Q_out without their owner."""
RENEW_S = 20.0
BLOCK_MS = 1000
"""Longest wait of a posted read at the server; also how often an idle one is posted anew."""
REPLY_MAXLEN = 4096
CLOSE_S = 0.5
"""Longest wait for the farewell commands of a closing bus."""

_FIELD = FIELD.encode()


class Entry(NamedTuple):
    """A stream entry. ``data`` is None for one without our field (a marker, a deleted entry)."""

    queue: str
    id: str
    data: bytes | None


def entries(reply: Any) -> Iterator[Entry]:
    """Entries in the reply of XREAD or XREADGROUP, oldest first per stream."""
    for key, items in reply or ():
        yield from entries_of(key.decode(), items)


def entries_of(queue: str, items: Any) -> Iterator[Entry]:
    """Entries in a list of ``[id, [field, value, ...]]``, as XAUTOCLAIM and XRANGE give."""
    for item in items:
        if item is not None:
            yield Entry(queue, item[0].decode(), _data(item[1]))


def _data(fields: Any) -> bytes | None:
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(_FIELD) if fields else None


def entry_ms(entry_id: str) -> int:
    """Server time at which an entry was added, in milliseconds."""
    return int(entry_id.partition("-")[0])


def after(entry_id: str) -> str:
    """The smallest id above this one."""
    ms, _, number = entry_id.partition("-")
    return f"{ms}-{int(number) + 1}"
