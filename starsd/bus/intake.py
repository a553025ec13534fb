"""The hub's reader connection: one pair of reads always posted, its groups kept alive."""

from __future__ import annotations

import time
from collections.abc import Callable

import hiredis

from starsd.bus.address import Address
from starsd.bus.link import SILENCE_S, Link, Reply
from starsd.bus.streams import BLOCK_MS, KEY_TTL_MS, Entry, entries
from starsd.bus.waiting import wait_readable
from starsd.protocol.keys import GROUP

READ_COUNT = 64
GATHER_S = 0.002
"""Longest wait for the rest of a burst whose first job woke the blocking read."""
_LOST_GROUP = ("NOGROUP", "UNBLOCKED")


class Intake:
    """Reads the sticky queue always, and Q_in for as many first jobs as the hub has room for.

    A blocking read wakes with the first entry of a burst only. So what is posted is a pair: a
    read of the sticky queue that does not block, then one of both queues that does. ``fresh``
    are new entries, ``again`` those delivered to us before a reconnect and never acknowledged.
    """

    def __init__(
        self,
        address: Address,
        sticky: str,
        offer: str,
        consumer: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = Link(address, self._start, silence_s=SILENCE_S + BLOCK_MS / 1000, clock=clock)
        self.fresh: list[Entry] = []
        self.again: list[Entry] = []
        self._clock = clock
        self._sticky, self._offer = sticky, offer
        self._read = ("XREADGROUP", "GROUP", GROUP, consumer)
        self._begin()

    def _begin(self) -> None:
        self.ready = False
        self._sweeping = self._posted = self._waking = False
        self._room = 0
        self._client: int | None = None

    @property
    def connected(self) -> bool:
        return self.link.up and self.ready

    # Every connection starts with groups, then with what it still owes

    def _start(self) -> None:
        self._begin()
        self.link.command("CLIENT", "ID", then=self._named)
        self._make_groups()
        self._read_own({self._sticky: "0-0", self._offer: "0-0"})

    def _named(self, reply: Reply) -> None:
        self._client = reply if isinstance(reply, int) else None

    def _make_groups(self) -> None:
        """At 0, so that what came before the group is served; MKSTREAM, so that senders see it."""
        for queue in (self._sticky, self._offer):
            self.link.command("XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM", then=self._made)
            self.link.command("PEXPIRE", queue, KEY_TTL_MS)

    def _made(self, reply: Reply) -> None:
        if isinstance(reply, hiredis.ReplyError) and not str(reply).startswith("BUSYGROUP"):
            self.link.fail(str(reply))

    def _read_own(self, cursors: dict[str, str]) -> None:
        def arrived(reply: Reply) -> None:
            if self._lost(reply):
                return
            found = list(entries(reply))
            self.again += found
            if found:
                self._read_own(cursors | {entry.queue: entry.id for entry in found})
            self.ready = not found

        streams = ("STREAMS", *cursors, *cursors.values())
        self.link.command(*self._read, "COUNT", READ_COUNT, *streams, then=arrived)
        self.link.flush()

    # Posting

    def poll(self, room: int) -> None:
        """Take what has arrived and keep a pair posted; ``room`` is how many first jobs fit."""
        self.link.poll()
        if self.ready and not self._posted:
            taken = sum(entry.queue == self._offer for entry in self.fresh)
            self._post(max(0, room - taken))

    def gather(self) -> None:
        """After a delivery: wait a moment for the rest of its burst."""
        deadline = self._clock() + GATHER_S
        while self._sweeping and self.link.up and (left := deadline - self._clock()) > 0:
            wait_readable(self.link.filenos(), left)
            self.link.poll()

    def waker(self, room: int) -> int | None:
        """Client id to CLIENT UNBLOCK because the posted read leaves Q_in out and need not."""
        if room <= 0 or self._room or not self._posted or self._waking:
            return None
        self._waking = self._client is not None
        return self._client

    def _post(self, room: int) -> None:
        self._posted = self._sweeping = True
        self._waking, self._room = False, room
        sticky = ("STREAMS", self._sticky, ">")
        both = ("STREAMS", self._sticky, self._offer, ">", ">")
        # COUNT holds per stream: more than fits must never leave Q_in, other hubs have room.
        count = min(room, READ_COUNT) if room else READ_COUNT
        block = ("COUNT", count, "BLOCK", BLOCK_MS, *(both if room else sticky))
        self.link.command(*self._read, "COUNT", READ_COUNT, *sticky, then=self._swept)
        self.link.command(*self._read, *block, then=self._woken)
        self.link.flush()

    def _swept(self, reply: Reply) -> None:
        self._sweeping = False
        self._take(reply)

    def _woken(self, reply: Reply) -> None:
        self._posted = False
        self._take(reply)

    def _take(self, reply: Reply) -> None:
        if not self._lost(reply):
            self.fresh += entries(reply)

    def _lost(self, reply: Reply) -> bool:
        """True for an error reply: a lost group is made anew, anything else ends this link."""
        if not isinstance(reply, hiredis.ReplyError):
            return False
        if str(reply).startswith(_LOST_GROUP):
            self._make_groups()
            self.ready = True
        else:
            self.link.fail(str(reply))
        return True
