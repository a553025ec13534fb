"""Housekeeping of the hub's queues on its writer connection; nothing is correct because of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import hiredis

from starsd.bus.clock import ServerClock
from starsd.bus.link import Link, Reply
from starsd.bus.streams import KEY_TTL_MS, RENEW_S, Entry, entries, entries_of
from starsd.protocol.keys import GROUP

CLAIM_COUNT = 32
JANITOR_COUNT = 16
_START = "0-0"


@dataclass(frozen=True)
class HygieneTimes:
    """Seconds. A job its hub holds is kept fresh, so ``min_idle_s`` means a dead hub's."""

    tick_s: float = 0.5
    min_idle_s: float = 1.0
    max_age_s: float = 60.0
    consumer_idle_s: float = 600.0


class Hygiene:
    """Reads the server's clock, renews the queues, takes over jobs of dead hubs, and reads what
    has lain unread for too long. ``again`` are entries to be delivered once more."""

    def __init__(
        self,
        writer: Link,
        queues: tuple[str, ...],
        consumer: str,
        times: HygieneTimes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.again: list[Entry] = []
        self.held: dict[tuple[str, str], float] = {}
        """(queue, entry id) of jobs given to the hub, and when; ``done`` or age removes them."""
        self.server = ServerClock(clock)
        self._writer = writer
        self._queues = queues
        self._consumer = consumer
        self._times = times
        self._clock = clock
        self._random = random.Random()
        self._cursors = dict.fromkeys(queues, _START)
        self._tick_at = self._renew_at = self._sweep_at = 0.0

    def tick(self, unread: str | None) -> None:
        """Does what is due. ``unread`` is a queue that the hub is not reading now."""
        now = self._clock()
        if not self._writer.up or now < self._tick_at:
            return
        self._tick_at = now + self._times.tick_s * self._random.uniform(0.5, 1.0)
        self._writer.command("TIME", then=partial(self._timed, now))
        self._keep_fresh(now)
        for queue in self._queues:
            self._claim(queue)
        if unread is not None:
            self._writer.command("XRANGE", unread, "-", "+", "COUNT", 1, then=self._oldest(unread))
        self._renew(now)
        self._writer.flush()

    def _timed(self, sent_at: float, reply: Reply) -> None:
        if isinstance(reply, list):
            self.server.observe(int(reply[0]) + int(reply[1]) / 1e6, sent_at)

    def _renew(self, now: float) -> None:
        if now >= self._renew_at:
            self._renew_at = now + RENEW_S
            for queue in self._queues:
                self._writer.command("PEXPIRE", queue, KEY_TTL_MS)
        if now >= self._sweep_at:
            self._sweep_at = now + self._times.consumer_idle_s
            for queue in self._queues:
                then = partial(self._forget_consumers, queue)
                self._writer.command("XINFO", "CONSUMERS", queue, GROUP, then=then)

    # Jobs of dead hubs

    def _keep_fresh(self, now: float) -> None:
        """Claiming what we hold ourselves, without counting a delivery, resets its idle time."""
        oldest = now - self._times.max_age_s
        self.held = {key: since for key, since in self.held.items() if since > oldest}
        for queue in self._queues:
            ids: list[str] = [entry for (key, entry), since in self.held.items() if key == queue]
            if ids:
                claim = ("XCLAIM", queue, GROUP, self._consumer, "0")
                self._writer.command(*claim, *ids, "JUSTID", then=_ignore)

    def _claim(self, queue: str) -> None:
        idle_ms = int(self._times.min_idle_s * 1000)
        self._writer.command(
            *("XAUTOCLAIM", queue, GROUP, self._consumer, idle_ms, self._cursors[queue]),
            *("COUNT", CLAIM_COUNT),
            then=partial(self._claimed, queue),
        )

    def _claimed(self, queue: str, reply: Reply) -> None:
        if isinstance(reply, list):
            self._cursors[queue] = reply[0].decode()
            self.again += entries_of(queue, reply[1])

    def _forget_consumers(self, queue: str, reply: Reply) -> None:
        """Hubs that crashed never deleted theirs; one that holds nothing may go."""
        if isinstance(reply, hiredis.ReplyError):
            return
        for row in reply:
            facts = dict(zip(row[::2], row[1::2], strict=True))
            idle_s = facts[b"idle"] / 1000
            if facts[b"pending"] == 0 and idle_s > self._times.consumer_idle_s:
                name = facts[b"name"]
                self._writer.command("XGROUP", "DELCONSUMER", queue, GROUP, name, then=_ignore)

    # Entries that nobody reads

    def _oldest(self, queue: str) -> Callable[[Reply], None]:
        def arrived(reply: Reply) -> None:
            oldest = list(entries_of(queue, reply)) if isinstance(reply, list) else []
            if oldest and self.expired(oldest[0].id):
                read = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", JANITOR_COUNT)
                self._writer.command(*read, "STREAMS", queue, ">", then=self._unread)
                self._writer.flush()

        return arrived

    def _unread(self, reply: Reply) -> None:
        if not isinstance(reply, hiredis.ReplyError):
            self.again += entries(reply)

    def expired(self, entry_id: str) -> bool:
        """Too old for any use: removed rather than delivered."""
        return self.server.age_s(entry_id) > self._times.max_age_s


def _ignore(_: Any) -> None:
    """For commands whose failure (a queue just lost) the reader connection repairs."""
