"""What plays the Redis server for the buses in memory: streams with one group each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starsd.bus.bell import Bell
from starsd.bus.streams import Entry
from starsd.protocol.keys import Keys

Tamper = Callable[[str, bytes], list[bytes]]
"""(stream key, entry) to the entries that are really written: drop, duplicate, corrupt."""


@dataclass
class _Pending:
    consumer: str
    deliveries: int
    since: float


@dataclass
class _Stream:
    entries: dict[str, bytes] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    pending: dict[str, _Pending] = field(default_factory=dict)


class MemoryStreams:
    """Tests stop and start it, see and tamper with what is written, and inject raw bytes.

    Buses may live in different threads.
    """

    def __init__(self, namespace: str = "starsd", *, min_idle_s: float = 1.0) -> None:
        self.keys = Keys(namespace)
        self.tamper: Tamper = lambda key, data: [data]
        self.min_idle_s = min_idle_s
        self.dead: list[bytes] = []
        self.generation = 1
        self.lock = threading.RLock()
        self._up = True
        self._streams: dict[str, _Stream] = {}
        self._bells: list[Bell] = []
        self._added = 0

    # What a test does to it

    @property
    def up(self) -> bool:
        return self._up

    def stop(self, *, keep: bool = False) -> None:
        """Go down; without ``keep`` everything stored is lost."""
        with self.lock:
            self._up = False
            self._streams = self._streams if keep else {}

    def start(self) -> None:
        with self.lock:
            self._up = True
            self.generation += 1
            self._ring()

    def flush_all(self) -> None:
        with self.lock:
            self._streams.clear()

    def inject(self, key: str, data: bytes) -> None:
        """Write raw bytes to a reply stream or queue, past ``tamper``; made if missing."""
        with self.lock:
            self.create(key)
            self._append(key, data)

    def stream_keys(self) -> list[str]:
        with self.lock:
            return sorted(self._streams)

    def length(self, key: str) -> int:
        """XLEN: entries neither deleted nor consumed; 0 for a missing stream."""
        with self.lock:
            return len(self._streams[key].entries) if key in self._streams else 0

    # What the buses do

    def watch(self, bell: Bell) -> None:
        with self.lock:
            self._bells.append(bell)

    def unwatch(self, bell: Bell) -> None:
        with self.lock:
            self._bells = [one for one in self._bells if one is not bell]

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    def create(self, key: str) -> None:
        self._streams.setdefault(key, _Stream())

    def delete(self, key: str) -> None:
        with self.lock:
            self._streams.pop(key, None)

    def add(self, key: str, data: bytes) -> bool:
        """XADD NOMKSTREAM: False if there is no such stream."""
        with self.lock:
            if key not in self._streams:
                return False
            for version in self.tamper(key, data):
                self._append(key, version)
            return True

    def _append(self, key: str, data: bytes) -> None:
        self._added += 1
        entry = f"{int(time.time() * 1000)}-{self._added}"
        stream = self._streams[key]
        stream.entries[entry] = data
        stream.unread.append(entry)
        self._ring()

    def drain(self, key: str) -> list[Entry]:
        """Everything on a reply stream, which is made if missing; it is consumed."""
        with self.lock:
            self.create(key)
            stream = self._streams[key]
            found = [Entry(key, entry, data) for entry, data in stream.entries.items()]
            self._streams[key] = _Stream()
            return found

    def read_group(self, key: str, consumer: str, count: int) -> list[Entry]:
        """XREADGROUP >; the group is made if missing."""
        with self.lock:
            self.create(key)
            stream = self._streams[key]
            taken, stream.unread = stream.unread[:count], stream.unread[count:]
            now = time.monotonic()
            stream.pending |= {entry: _Pending(consumer, 1, now) for entry in taken}
            return [Entry(key, entry, stream.entries[entry]) for entry in taken]

    def claim(self, key: str, consumer: str, *, own: bool) -> list[tuple[Entry, int]]:
        """Entries pending with us (``own``), or idle with anybody, and their deliveries."""
        with self.lock:
            found, now = [], time.monotonic()
            stream = self._streams.get(key, _Stream())
            for entry, pending in stream.pending.items():
                idle = now - pending.since > self.min_idle_s
                if (own and pending.consumer == consumer) or (not own and idle):
                    stream.pending[entry] = _Pending(consumer, pending.deliveries + 1, now)
                    found.append((Entry(key, entry, stream.entries[entry]), pending.deliveries + 1))
            return found

    def refresh(self, key: str, entry: str) -> None:
        with self.lock:
            stream = self._streams.get(key, _Stream())
            if entry in stream.pending:
                stream.pending[entry].since = time.monotonic()

    def acknowledge(self, key: str, entry: str) -> None:
        """XACK and XDEL."""
        with self.lock:
            if key in self._streams:
                self._streams[key].pending.pop(entry, None)
                self._streams[key].entries.pop(entry, None)
