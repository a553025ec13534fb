"""One Redis connection for a step loop: synchronous, never blocking, never raising when dead.

Commands are pipelined and their replies come back in order, each to its callback. The link dials
again by itself, with jittered backoff, and notices a peer that has silently gone.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
import structlog

from starsd.bus.address import Address
from starsd.bus.dial import Dialing, Resolver, dial
from starsd.bus.waiting import wait_readable

log = structlog.get_logger()

Reply = Any
"""int, bytes, list, None, or ``hiredis.ReplyError``."""
Then = Callable[[Reply], None]
Arg = str | bytes | int

CONNECT_S = 2.0
PING_AFTER_S = 1.0
SILENCE_S = 2.0
STABLE_S = 1.0
BACKOFF_FIRST_S = 0.05
BACKOFF_MOST_S = 1.0
MAX_UNSENT_BYTES = 64 * 1024 * 1024
_READ_BYTES = 64 * 1024
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_UNFIT = ("READONLY", "NOREPLICAS", "LOADING", "MASTERDOWN", "NOAUTH", "CLUSTERDOWN", "MOVED")
"""Error replies of a server that cannot be the star's: leave it, and look again."""


class Link:
    """``on_up`` runs whenever the connection is usable anew, before anything else is sent.

    ``silence_s`` is how long an answer may take before the peer counts as dead; a link that
    posts blocking reads adds its block time. Time is in seconds of ``clock``.
    """

    def __init__(
        self,
        address: Address,
        on_up: Callable[[], None],
        *,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._on_up = on_up
        self._silence_s = silence_s
        self._clock = clock
        self._random = random.Random()
        self._resolver = Resolver(address)
        self._dialing: Dialing | None = None
        self._sock: socket.socket | None = None
        self._closed = False
        self._failures = 0
        self._retry_at = 0.0
        self._deadline = 0.0
        self._up_at = 0.0
        self._reset()
        self.up = False
        self.ups = 0

    def _reset(self) -> None:
        self._reader = hiredis.Reader()
        self._pending: deque[Then | None] = deque()
        self._out = bytearray()
        self._asked = False
        self._heard_at = 0.0

    # Use

    def command(self, *args: Arg, then: Then | None = None) -> bool:
        """Queue a command; ``flush`` or ``poll`` writes it. False when the link is down.

        ``then`` gets the reply; it never runs if the link dies first. Without it, an error reply
        is logged.
        """
        if not self.up:
            return False
        self._queue(args, then)
        return self.up

    def _queue(self, args: tuple[Arg, ...], then: Then | None) -> None:
        self._out += hiredis.pack_command(args)  # type: ignore[arg-type]  # stub: one-tuple
        self._pending.append(then)
        if len(self._out) > MAX_UNSENT_BYTES:
            self.fail(f"server reads too slowly: {len(self._out)} bytes are waiting")

    def flush(self) -> None:
        """Write what is queued, as far as the socket takes it."""
        try:
            while self._out and self._sock is not None:
                del self._out[: self._sock.send(self._out)]
                if not self._asked:
                    self._asked, self._heard_at = True, self._clock()
        except _AGAIN:
            pass
        except OSError as error:
            self.fail(str(error))

    def poll(self) -> None:
        """Dial if due, write, and hand out the replies that have arrived."""
        if self._sock is None:
            self._dial()
        if self._sock is not None:
            self.flush()
            self._read()
            self._watch()

    def filenos(self) -> list[int]:
        """The descriptor to select for reading; none while not connected."""
        return [] if self._sock is None else [self._sock.fileno()]

    def drain(self, within_s: float) -> None:
        """Poll until every command was answered, the link died, or the time is up."""
        deadline = self._clock() + within_s
        while self.up and self._pending and (left := deadline - self._clock()) > 0:
            self.flush()
            wait_readable(self.filenos(), min(left, 0.01))
            self.poll()

    def close(self) -> None:
        self._closed = True
        self._drop()

    # Connecting

    def _dial(self) -> None:
        now = self._clock()
        if self._closed or now < self._retry_at:
            return
        if self._dialing is None:
            self._dialing = dial(self._address, self._resolver)
            self._deadline = now + CONNECT_S
        try:
            next(self._dialing)
        except StopIteration as connected:
            self._dialing = None
            self._greet(connected.value)
        except OSError as error:
            self.fail(f"cannot connect: {error}")
        else:
            if now > self._deadline:
                self.fail(f"no connection within {CONNECT_S:g} s")

    def _greet(self, sock: socket.socket) -> None:
        self._reset()
        self._sock = sock
        *first, last = self._address.greeting
        for command in first:
            self._queue(command, self._accepted)
        self._queue(last, self._welcomed)

    def _accepted(self, reply: Reply) -> None:
        if isinstance(reply, hiredis.ReplyError):
            self.fail(f"refused: {reply}")

    def _welcomed(self, reply: Reply) -> None:
        if isinstance(reply, hiredis.ReplyError):
            self.fail(f"refused: {reply}")
            return
        self.up, self._up_at = True, self._clock()
        self.ups += 1
        log.info("redis link up", address=str(self._address))
        self._on_up()
        self.flush()

    # Reading

    def _read(self) -> None:
        while self._sock is not None:
            try:
                data = self._sock.recv(_READ_BYTES)
            except _AGAIN:
                return
            except OSError as error:
                self.fail(str(error))
                return
            if not data:
                self.fail("closed by the server")
                return
            self._feed(data)
            if len(data) < _READ_BYTES and self._address.tls is None:
                return

    def _feed(self, data: bytes) -> None:
        self._heard_at = self._clock()
        try:
            self._reader.feed(data)
            # A callback may lose this connection; what is left of its bytes is then void.
            reader = self._reader
            while reader is self._reader and (reply := reader.gets()) is not False:
                self._deliver(reply)
        except hiredis.ProtocolError as error:
            self.fail(f"no Redis there: {error}")

    def _deliver(self, reply: Reply) -> None:
        if not self._pending:
            self.fail("a reply that nobody asked for")
            return
        then = self._pending.popleft()
        self._asked = bool(self._pending)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith(_UNFIT):
            self.fail(str(reply))
        elif then is not None:
            then(reply)
        elif isinstance(reply, hiredis.ReplyError):
            log.warning("redis error", error=str(reply))

    def _watch(self) -> None:
        """Ping a quiet peer; give up on one that owes an answer for too long."""
        if self._sock is None:
            return
        quiet_s = self._clock() - self._heard_at
        if self._asked and quiet_s > self._silence_s:
            self.fail(f"silent for {quiet_s:.1f} s")
        elif self.up and not self._pending and quiet_s > PING_AFTER_S:
            self.command("PING", then=self._accepted)
            self.flush()

    # Losing it

    def fail(self, reason: str) -> None:
        """Give this connection up; the next one is dialled after a pause."""
        now = self._clock()
        if self.up and now - self._up_at > STABLE_S:
            self._failures = 0
        pause = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 10))
        self._retry_at = now + pause * self._random.uniform(0.5, 1.0)
        level = log.warning if self._failures == 0 else log.debug
        level("redis link down", address=str(self._address), reason=reason)
        self._failures += 1
        self._drop()

    def _drop(self) -> None:
        self.up = False
        if self._dialing is not None:
            self._dialing.close()
            self._dialing = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._reset()
