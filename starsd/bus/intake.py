"""One of the hub's queues: its consumer group kept alive, and reads posted ahead."""

from __future__ import annotations

import time
from collections.abc import Callable

import hiredis

from starsd.bus.address import Address
from starsd.bus.link import SILENCE_S, Link, Reply
from starsd.bus.streams import BLOCK_MS, KEY_TTL_MS, Entry, entries
from starsd.protocol.keys import GROUP

READ_COUNT = 64
_LOST_GROUP = ("NOGROUP", "UNBLOCKED")


class Intake:
    """Reads ``queue`` on a connection of its own, at most ``reads`` blocking reads in a row.

    A blocking read ends with the first entry of a burst. The one behind it brings the rest, and
    those behind that what comes while the hub computes: when it looks, all is in the socket.
    ``fresh`` are new entries, ``again`` those delivered to us before a reconnect and never
    acknowledged.
    """

    def __init__(
        self,
        address: Address,
        queue: str,
        consumer: str,
        reads: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = Link(address, self._start, silence_s=SILENCE_S + BLOCK_MS / 1000, clock=clock)
        self.fresh: list[Entry] = []
        self.again: list[Entry] = []
        self._queue, self._reads = queue, reads
        self._read = ("XREADGROUP", "GROUP", GROUP, consumer)
        self._begin()

    def _begin(self) -> None:
        self.ready = False
        self._posted = 0

    @property
    def connected(self) -> bool:
        return self.link.up and self.ready

    # Every connection starts with the group, then with what it still owes

    def _start(self) -> None:
        self._begin()
        self._make_group()
        self._read_own("0-0")

    def _make_group(self) -> None:
        """At 0, so that what came before the group is served; MKSTREAM, so that senders see it."""
        create = ("XGROUP", "CREATE", self._queue, GROUP, "0", "MKSTREAM")
        self.link.command(*create, then=self._made)
        self.link.command("PEXPIRE", self._queue, KEY_TTL_MS)

    def _made(self, reply: Reply) -> None:
        if isinstance(reply, hiredis.ReplyError) and not str(reply).startswith("BUSYGROUP"):
            self.link.fail(str(reply))

    def _read_own(self, after: str) -> None:
        def arrived(reply: Reply) -> None:
            if self._lost(reply):
                return
            found = list(entries(reply))
            self.again += found
            if found:
                self._read_own(found[-1].id)
            self.ready = not found

        streams = ("STREAMS", self._queue, after)
        self.link.command(*self._read, "COUNT", READ_COUNT, *streams, then=arrived)
        self.link.flush()

    # Posting

    def poll(self, room: int) -> None:
        """Take what has arrived and keep reads posted; ``room`` is how many entries fit."""
        self.link.poll()
        if self.ready and self._posted <= self._reads // 2 and room > len(self.fresh):
            self._post(room - len(self.fresh))

    def _post(self, room: int) -> None:
        """More than fits must never leave the queue, other hubs have room."""
        block = ("COUNT", min(room, READ_COUNT), "BLOCK", BLOCK_MS)
        while self._posted < self._reads:
            self._posted += 1
            self.link.command(*self._read, *block, "STREAMS", self._queue, ">", then=self._take)
        self.link.flush()

    def _take(self, reply: Reply) -> None:
        self._posted -= 1
        if not self._lost(reply):
            self.fresh += entries(reply)

    def _lost(self, reply: Reply) -> bool:
        """True for an error reply: a lost group is made anew, anything else ends this link."""
        if not isinstance(reply, hiredis.ReplyError):
            return False
        if str(reply).startswith(_LOST_GROUP):
            self._make_group()
            self.ready = True
        else:
            self.link.fail(str(reply))
        return True
