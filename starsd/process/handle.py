"""A step loop as its front process sees it: what it said last, and whether it still moves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from starsd.errors import EngineError, ErrorBody, RemoteError, StarsdError, UnavailableError
from starsd.process.channel import FrontChannel
from starsd.process.spawn import STOP_GRACE_S, LoopProcess
from starsd.protocol.frames import Failed, Snapshot, Started, Stop, ToFront, ToLoop
from starsd.service import cancel

START_DEADLINE_S = 1800.0
"""Longest start of a loop: a large model may be downloaded and converted."""
STARTING_GRACE_S = 0.5
"""A loop that is still loading cannot hear that it should stop."""
FRESH_S = 5.0
"""A loop that has said nothing for this long is not ready."""
HUNG_S = 60.0
"""A loop that has said nothing for this long is not alive."""

log = structlog.get_logger()


class LoopHandle:
    """Owns the loop's process and the channel to it.

    ``on_message`` gets every frame but ``Started`` and ``Snapshot``; ``on_death`` is called once,
    with the reason, when the loop ends without having been told to.
    """

    def __init__(
        self,
        process: LoopProcess,
        on_message: Callable[[ToFront], None],
        on_death: Callable[[ErrorBody], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._process = process
        self._on_message = on_message
        self._on_death = on_death
        self._clock = clock
        self._channel: FrontChannel[ToFront] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._moved_at = clock()
        self._stopping = False
        self.started: Started | None = None
        self.snapshot: Snapshot | None = None
        self.metrics = b""
        """The loop's latest exposition text."""
        self.death: ErrorBody | None = None

    @property
    def fresh(self) -> bool:
        """The loop is up and has reported within ``FRESH_S``; it reports between its steps."""
        return self.death is None and self.snapshot is not None and self._idle_s < FRESH_S

    @property
    def alive(self) -> bool:
        """Not dead, and not hung since its start. A start may take long, so it counts as alive."""
        return self.death is None and (self.snapshot is None or self._idle_s < HUNG_S)

    @property
    def _idle_s(self) -> float:
        return self._clock() - self._moved_at

    async def start(self, deadline_s: float = START_DEADLINE_S) -> Started:
        """Wait until the loop serves. Raises StarsdError when it fails or takes too long."""
        self._channel = await FrontChannel.open(self._process.socket, ToFront)
        self._pump = asyncio.create_task(self._receive(self._channel), name="loop-pump")
        try:
            async with asyncio.timeout(deadline_s):
                await self._settled.wait()
        except TimeoutError as error:
            raise EngineError(f"the step loop did not start within {deadline_s:g} s") from error
        if self.started is None:
            raise RemoteError(self.death or UnavailableError("stopped while starting").body())
        return self.started

    async def dead(self) -> None:
        """Wait for the loop's end after its start. Raises RemoteError with the reason."""
        assert self._pump is not None, "started"
        await asyncio.wait([self._pump])
        if self.death is not None:
            raise RemoteError(self.death)

    def send(self, message: ToLoop) -> None:
        """Raises TransportError (gone, or stopped reading) or UnavailableError (not started)."""
        if self._channel is None:
            raise UnavailableError("the step loop has not started")
        self._channel.send(message)

    async def stop(self) -> None:
        """Ask the loop to end and see that it does. Safe at any time, also twice."""
        self._stopping = True
        with contextlib.suppress(StarsdError):
            self.send(Stop())
        grace_s = STOP_GRACE_S if self.started else STARTING_GRACE_S
        await asyncio.to_thread(self._process.stop, grace_s)
        if self._pump is not None:
            await cancel(self._pump)
        self._settled.set()
        if self._channel is not None:
            self._channel.close()
        else:
            self._process.socket.close()

    async def _receive(self, channel: FrontChannel[ToFront]) -> None:
        error = EngineError("the step loop ended unexpectedly").body()
        try:
            while messages := await channel.receive():
                for message in messages:
                    self._take(message)
                await asyncio.sleep(0)  # let readers run between two bursts
        except StarsdError as caught:
            error = caught.body()
        except Exception:
            log.exception("frame handling failed")
        self._die(error)

    def _take(self, message: ToFront) -> None:
        match message:
            case Started():
                self.started, self._moved_at = message, self._clock()
                self._settled.set()
            case Snapshot():
                self._observe(message)
            case Failed(id=None, error=error):
                raise RemoteError(error)
            case _:
                self._on_message(message)

    def _observe(self, snapshot: Snapshot) -> None:
        self._moved_at = self._clock()
        self.snapshot = snapshot
        self.metrics = snapshot.metrics or self.metrics

    def _die(self, error: ErrorBody) -> None:
        if not self._stopping:
            self.death = error
            log.error("loop died", pid=self._process.pid, reason=error.message)
            self._on_death(error)
        self._settled.set()
