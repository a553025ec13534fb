"""The target's end of the star: jobs out to Q_in and sticky queues, replies in from Q_out."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import hiredis

from starsd.bus.address import parse_address
from starsd.bus.interface import Garbage, QueueGone, Reconnected, TargetEvent
from starsd.bus.link import SILENCE_S, Link, Reply
from starsd.bus.streams import (
    BLOCK_MS,
    CLOSE_S,
    KEY_TTL_MS,
    RENEW_S,
    REPLY_MAXLEN,
    Entry,
    after,
    entries,
)
from starsd.errors import ProtocolError
from starsd.protocol.codec import decode_to_target, encode
from starsd.protocol.keys import FIELD, Keys
from starsd.protocol.messages import Propose, ToHub

TICK_S = 1.0
"""Seconds between trims of Q_out to what is still unread."""
READ_COUNT = 128
_START = "0-0"
_MARKER = "boot"
"""Field of the entry that creates Q_out; it carries no message."""


class RedisTargetBus:
    """Implements ``TargetBus``: one connection to write, one with a read of Q_out always posted.

    ``QueueGone.queue`` is the queue's key. Raises ConfigError for a bad URL, nothing later.
    """

    def __init__(
        self,
        url: str,
        keys: Keys,
        target: str,
        boot: str,
        *,
        tick_s: float = TICK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        address = parse_address(url)
        self._keys = keys
        self._reply_key = keys.reply_stream(target, boot)
        self._boot = boot
        self._tick_s = tick_s
        self._clock = clock
        self._writer = Link(address, self._create, clock=clock)
        self._reader = Link(
            address, self._locate, silence_s=SILENCE_S + BLOCK_MS / 1000, clock=clock
        )
        self._events: list[TargetEvent] = []
        self._cursor = self._trimmed = _START
        self._seen_ups = (0, 0)
        self._unheard = False
        self._tick_at = self._renew_at = 0.0

    @property
    def reply_key(self) -> str:
        return self._reply_key

    @property
    def connected(self) -> bool:
        return self._writer.up and self._reader.up

    # Sending

    def send_first(self, offer_digest: str, job: Propose) -> None:
        self._send(self._keys.offer_queue(offer_digest), job)

    def send_hub(self, hub: str, message: ToHub) -> None:
        self._send(self._keys.hub_queue(hub), message)

    def _send(self, queue: str, message: ToHub) -> None:
        """Raises ProtocolError for a message over the bound, which the sender must split."""
        then = partial(self._sent, queue)
        self._writer.command("XADD", queue, "NOMKSTREAM", "*", FIELD, encode(message), then=then)
        self._unheard = True

    def _sent(self, queue: str, reply: Reply) -> None:
        if reply is None and QueueGone(queue) not in self._events:
            self._events.append(QueueGone(queue))
        elif isinstance(reply, hiredis.ReplyError):
            self._events.append(Garbage(f"{queue} refused a message: {reply}"))

    def flush(self) -> None:
        self._writer.flush()

    # Receiving

    def receive(self) -> list[TargetEvent]:
        self._writer.poll()
        self._reader.poll()
        self._housekeep()
        self._notice_reconnect()
        events, self._events = self._events, []
        return events

    def filenos(self) -> list[int]:
        return [*self._reader.filenos(), *self._writer.filenos()]

    def _notice_reconnect(self) -> None:
        ups = (self._writer.ups, self._reader.ups)
        if self.connected and ups != self._seen_ups:
            self._seen_ups = ups
            self._events.insert(0, Reconnected())

    def _locate(self) -> None:
        """Reading resumes where it was, or anew if this server's stream is not the one we read."""
        self._reader.command("XINFO", "STREAM", self._reply_key, then=self._located)

    def _located(self, reply: Reply) -> None:
        if isinstance(reply, hiredis.ReplyError):
            self._cursor = _START
        else:
            last = reply[reply.index(b"last-generated-id") + 1].decode()
            if _order(self._cursor) > _order(last):
                self._cursor = _START
        self._post()

    def _post(self) -> None:
        limits = ("COUNT", READ_COUNT, "BLOCK", BLOCK_MS)
        self._reader.command(
            "XREAD", *limits, "STREAMS", self._reply_key, self._cursor, then=self._arrived
        )
        self._reader.flush()

    def _arrived(self, reply: Reply) -> None:
        if isinstance(reply, hiredis.ReplyError):
            self._reader.fail(str(reply))
            return
        for entry in entries(reply):
            self._accept(entry)
        if reply is None and self._unheard:
            # Silence after a question: is the stream the hub answers on still there?
            self._renew()
        self._unheard = self._unheard and reply is None
        self._post()

    def _accept(self, entry: Entry) -> None:
        self._cursor = entry.id
        if entry.data is None:
            return
        try:
            self._events.append(decode_to_target(entry.data))
        except ProtocolError as error:
            self._events.append(Garbage(f"{self._reply_key} {entry.id}: {error.message}"))

    # Keeping Q_out alive and short

    def _create(self) -> None:
        limit = ("MAXLEN", "~", REPLY_MAXLEN)
        self._writer.command("XADD", self._reply_key, *limit, "*", _MARKER, self._boot)
        self._writer.command("PEXPIRE", self._reply_key, KEY_TTL_MS)
        self._renew_at = self._clock() + RENEW_S

    def _renew(self) -> None:
        self._renew_at = self._clock() + RENEW_S
        self._writer.command("PEXPIRE", self._reply_key, KEY_TTL_MS, then=self._renewed)
        self._writer.flush()

    def _renewed(self, reply: Reply) -> None:
        if reply == 0:
            self._cursor = _START
            self._create()
            self._writer.flush()

    def _housekeep(self) -> None:
        now = self._clock()
        if now < self._tick_at or not self._writer.up:
            return
        self._tick_at = now + self._tick_s
        if now >= self._renew_at:
            self._renew()
        if self._cursor not in (_START, self._trimmed):
            self._trimmed = self._cursor
            self._writer.command("XTRIM", self._reply_key, "MINID", after(self._cursor))
        self._writer.flush()

    def close(self) -> None:
        """Delete Q_out (PEXPIRE 0, which its ACL allows) and close both connections."""
        self._writer.command("PEXPIRE", self._reply_key, 0)
        self._writer.drain(CLOSE_S)
        self._writer.close()
        self._reader.close()


def _order(entry_id: str) -> tuple[int, int]:
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number)
