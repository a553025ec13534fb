"""The hub's end of the star: jobs in from its queues, replies out, then acknowledgements."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import hiredis
import structlog

from starsd.bus.address import parse_address
from starsd.bus.hygiene import Hygiene, HygieneTimes
from starsd.bus.intake import Intake
from starsd.bus.interface import BadJob, Job
from starsd.bus.link import Link, Reply
from starsd.bus.screening import bad_answer, check_reply_key, decode_job
from starsd.bus.streams import CLOSE_S, REPLY_MAXLEN, Entry
from starsd.bus.waiting import wait_readable
from starsd.errors import ProtocolError
from starsd.log import Seldom
from starsd.protocol.codec import encode
from starsd.protocol.keys import FIELD, GROUP, Keys
from starsd.protocol.messages import ToTarget

log = structlog.get_logger()

MAX_DELIVERIES = 2
"""A job delivered more often than this has outlived two hubs, and goes to the dead letters."""
DEAD_MAXLEN = 1000
DEAD_BYTES = 4096
DEAD_TTL_MS = 24 * 3600 * 1000
STICKY_READS = 16
"""Posted at once: so often something may come during a step of the model and be there after it."""
UNBOUNDED = 1 << 30
_NAP_S = 0.02
"""Longest wait at a time: dialling and housekeeping must go on."""


class RedisHubBus:
    """Implements ``HubBus``: a connection that writes, and one that reads (``Intake``) for each of
    the queues: the sticky one always, Q_in for as many first jobs as the hub has room for.

    ``offer_digest`` names Q_in; (``hub``, ``boot``) the consumer. Raises ConfigError for a bad URL.
    """

    def __init__(
        self,
        url: str,
        keys: Keys,
        hub: str,
        boot: str,
        offer_digest: str,
        *,
        times: HygieneTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        address = parse_address(url)
        self._keys, self._hub, self._boot = keys, hub, boot
        self._sticky, self._offer = keys.hub_queue(hub), keys.offer_queue(offer_digest)
        self._consumer = f"{hub}:{boot}"
        queues = (self._sticky, self._offer)
        self._clock = clock
        self._writer = Link(address, self._writable, clock=clock)
        self._mine = Intake(address, self._sticky, self._consumer, STICKY_READS, clock)
        self._first = Intake(address, self._offer, self._consumer, 1, clock)
        self._hygiene = Hygiene(
            self._writer, queues, self._consumer, times or HygieneTimes(), clock
        )
        self._inbox: list[Job | BadJob] = []
        self._finished: defaultdict[str, list[str]] = defaultdict(list)
        self._gone: set[str] = set()
        self._complain = Seldom()

    @property
    def connected(self) -> bool:
        return self._writer.up and self._mine.connected and self._first.connected

    def filenos(self) -> list[int]:
        links = (self._mine.link, self._first.link, self._writer)
        return [fileno for link in links for fileno in link.filenos()]

    # Jobs in

    def receive(self, timeout_s: float, *, want_first: int) -> list[Job | BadJob]:
        deadline = self._clock() + timeout_s
        self._poll(want_first)
        while not self._inbox and (left := deadline - self._clock()) > 0:
            wait_readable(self.filenos() if self.connected else (), min(left, _NAP_S))
            self._poll(want_first)
        jobs, self._inbox = self._inbox, []
        return jobs

    def _poll(self, room: int) -> None:
        self._writer.poll()
        self._mine.poll(UNBOUNDED)
        self._first.poll(room)
        self._hygiene.tick(None if room else self._offer)
        self._sort()
        self._write()

    def _sort(self) -> None:
        for entry in [*_taken(self._mine.fresh), *_taken(self._first.fresh)]:
            self._screen(entry)
        if not self._writer.up:  # a reader may be back first; what was delivered can wait
            return
        for source in (self._mine, self._first, self._hygiene):
            for entry in _taken(source.again):
                self._redeliver(entry)

    def _redeliver(self, entry: Entry) -> None:
        """An entry that was delivered before: how often decides what becomes of it."""
        if (entry.queue, entry.id) in self._hygiene.held:
            return
        if entry.data is None:
            self._finish(entry)
            return
        scope = (entry.queue, GROUP, entry.id, entry.id, 1)
        self._writer.command("XPENDING", *scope, then=partial(self._counted, entry))

    def _counted(self, entry: Entry, reply: Reply) -> None:
        if not isinstance(reply, list) or not reply or reply[0][1].decode() != self._consumer:
            return
        if (deliveries := reply[0][3]) > MAX_DELIVERIES and not self._hygiene.expired(entry.id):
            self._condemn(entry, f"delivered {deliveries} times and never answered")
        else:
            self._screen(entry)

    def _screen(self, entry: Entry) -> None:
        key = (entry.queue, entry.id)
        if key in self._hygiene.held:
            return
        if self._hygiene.expired(entry.id):
            self._finish(entry)
            return
        try:
            message = decode_job(self._keys, entry.data)
        except ProtocolError as error:
            self._condemn(entry, error.message)
            return
        self._hygiene.held[key] = self._clock()
        age_s = self._hygiene.server.age_s(entry.id)
        first = entry.queue == self._offer
        self._inbox.append(Job(entry.id, entry.queue, message, age_s, first))

    def _condemn(self, entry: Entry, reason: str) -> None:
        """Dead letter, answer ``bad`` if the sender can be read, acknowledge."""
        data = entry.data or b""
        letter = (FIELD, data[:DEAD_BYTES], "queue", entry.queue, "reason", reason)
        dead = self._keys.dead_letters
        self._writer.command("XADD", dead, "MAXLEN", "~", DEAD_MAXLEN, "*", *letter)
        self._writer.command("PEXPIRE", dead, DEAD_TTL_MS)
        if (answer := bad_answer(self._keys, data, self._hub, self._boot)) is not None:
            self.reply(*answer)
        self._finish(entry)
        self._inbox.append(BadJob(f"{entry.queue} {entry.id}: {reason}"))

    # Replies out

    def reply(self, reply_key: str, message: ToTarget) -> None:
        """Raises ProtocolError for a key that is no target's, or a message over the bound."""
        check_reply_key(self._keys, reply_key)
        limit = ("NOMKSTREAM", "MAXLEN", "~", REPLY_MAXLEN)
        then = partial(self._replied, reply_key)
        self._writer.command("XADD", reply_key, *limit, "*", FIELD, encode(message), then=then)

    def _replied(self, reply_key: str, reply: Reply) -> None:
        if reply is None:
            self._gone.add(reply_key)
        elif isinstance(reply, hiredis.ReplyError):
            self._complain(log.warning, "reply refused", reply_key=reply_key, error=str(reply))

    def done(self, job: Job) -> None:
        self._hygiene.held.pop((job.queue, job.entry), None)
        self._finished[job.queue].append(job.entry)

    def _finish(self, entry: Entry) -> None:
        self._finished[entry.queue].append(entry.id)

    def flush(self) -> list[str]:
        self._write()
        gone, self._gone = sorted(self._gone), set()
        return gone

    def _write(self) -> None:
        """Acknowledgements go behind the replies already queued: at least once, never lost."""
        for queue, ids in self._finished.items():
            self._writer.command("XACK", queue, GROUP, *ids)
            self._writer.command("XDEL", queue, *ids)
        self._finished.clear()
        self._writer.flush()

    def _writable(self) -> None:
        """Nothing to set up: groups are the reader's, and what was unsent is delivered again."""

    # Leaving

    def close(self) -> None:
        """Acknowledge, leave the group unless jobs are pending there, delete the sticky queue."""
        self._mine.link.close()
        self._first.link.close()
        self._write()
        scope = (self._offer, GROUP, "-", "+", 1, self._consumer)
        self._writer.command("XPENDING", *scope, then=self._leave)
        self._writer.command("PEXPIRE", self._sticky, 0)
        self._writer.drain(CLOSE_S)
        self._writer.close()

    def _leave(self, reply: Reply) -> None:
        # Deleting a consumer drops what it has pending; another hub may still claim that.
        if reply == []:
            self._writer.command("XGROUP", "DELCONSUMER", self._offer, GROUP, self._consumer)


def _taken(found: list[Entry]) -> list[Entry]:
    """The entries, which are removed from where they were found."""
    taken = found[:]
    found.clear()
    return taken
