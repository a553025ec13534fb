"""From a request to one stream of events, whichever target gives it: choice, failover, deadline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

import structlog

from services.gateway.metrics import Cause, GatewayMetrics
from services.gateway.pool import RETRY_AFTER_S, Pool, Target
from starsd.errors import (
    INTERNAL_ERROR,
    DeadlineError,
    ProtocolError,
    RemoteError,
    StarsdError,
    TransportError,
    UnavailableError,
)
from starsd.metrics import Outcome, RequestClock, outcome_of
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Generate
from starsd.protocol.frames import FinishReason
from starsd.service import cancel
from starsd.upstream import Upstream

log = structlog.get_logger()

MAX_QUEUED_EVENTS = 64
TAIL_S = 0.5
"""How long a target may take to end its stream after the terminal event."""
ELSEWHERE = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""A target's refusals that say nothing about the request: another target may take it."""


class Answer:
    """Begin, Deltas, then exactly one Done or Error; failures of every kind become that Error."""

    def __init__(self, clock: RequestClock) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED_EVENTS)
        self._clock = clock
        self.target = ""
        """Name of the target that serves it; empty before Begin."""
        self.ended = False
        """The terminal event is in; the reader may not have got it yet."""
        self.terminal: Done | Error | None = None
        """The terminal event, once read."""

    @property
    def begun(self) -> bool:
        return self.target != ""

    async def put(self, event: Event, target: str = "") -> None:
        """Waits while the reader is behind."""
        if self.ended:
            return
        if isinstance(event, Begin):
            self.target = target
            self._clock.admitted()
        elif isinstance(event, Delta):
            self._clock.tokens(len(event.ids))
        else:
            self.ended = True
        await self._events.put(event)

    async def next(self, within_s: float | None = None) -> Event | None:
        """The next event, or None if none came in time."""
        try:
            async with asyncio.timeout(within_s):
                event = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(event, Done | Error):
            self.terminal = event
        return event

    def end(self) -> None:
        """Measure how it ended: without a terminal event the client left."""
        if isinstance(self.terminal, Done):
            self._clock.end(Outcome.OK, self.terminal.usage.prompt_tokens)
        elif self.terminal is None:
            self._clock.end(Outcome.CANCELLED)
        else:
            self._clock.end(outcome_of(self.terminal.error))


class _Elsewhere(Exception):
    """Nothing was delivered, so another target may try; ``error`` if there is none."""

    def __init__(self, error: StarsdError) -> None:
        super().__init__(error.message)
        self.error = error


class Answers:
    """Opens answers."""

    def __init__(
        self, pool: Pool, upstream: Upstream, metrics: GatewayMetrics, timeout_s: float
    ) -> None:
        self._pool = pool
        self._upstream = upstream
        self._metrics = metrics
        self._timeout_s = timeout_s

    @contextlib.asynccontextmanager
    async def open(self, request: Generate) -> AsyncIterator[Answer]:
        """An answer under way. Leaving the block early closes the target's stream at once."""
        answer = Answer(RequestClock(self._metrics.requests))
        pump = asyncio.create_task(self._pump(request, answer), name=f"pump {request.id}")
        try:
            yield answer
            if answer.terminal is not None:
                await asyncio.wait({pump}, timeout=TAIL_S)
        finally:
            answer.end()
            await cancel(pump)

    async def _pump(self, request: Generate, answer: Answer) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._run(request, answer)
            return
        except TimeoutError:
            message = f"not finished within {self._timeout_s:g} s, the limit of a request"
            error = DeadlineError(message).body()
        except StarsdError as failure:
            error = failure.body()
        except Exception as crash:
            log.error("request crashed", request=request.id, exc_info=crash)
            error = INTERNAL_ERROR
        await answer.put(Error(error=error))

    async def _run(self, request: Generate, answer: Answer) -> None:
        """On one target, or on a second one if the first delivered nothing."""
        first = self._pool.choose(request.model)
        try:
            return await self._attempt(first, request, answer)
        except _Elsewhere as failure:
            second = self._second(request.model, first, failure.error)
        log.info("request moved", request=request.id, origin=first.name, to=second.name)
        self._metrics.moved.inc()
        try:
            await self._attempt(second, request, answer)
        except _Elsewhere as failure:
            raise failure.error from failure

    def _second(self, model: str, first: Target, failure: StarsdError) -> Target:
        try:
            return self._pool.choose(model, but=(first,))
        except StarsdError:
            raise failure from None

    async def _attempt(self, target: Target, request: Generate, answer: Answer) -> None:
        try:
            async with target.carrying():
                await self._relay(target, request, answer)
        except RemoteError as refusal:
            if refusal.body().status not in ELSEWHERE:
                raise
            self._metrics.failures.labels(Cause.REFUSED).inc()
            raise _Elsewhere(refusal) from refusal
        except TimeoutError as error:
            raise self._broken(target, Cause.LOST, "it stopped answering", answer) from error
        except TransportError as error:
            cause = Cause.BROKEN if answer.begun else Cause.UNREACHABLE
            raise self._broken(target, cause, error.message, answer) from error
        except ProtocolError as error:
            raise self._broken(target, Cause.GARBAGE, error.message, answer) from error

    async def _relay(self, target: Target, request: Generate, answer: Answer) -> None:
        events = self._upstream.generate(target.url, request)
        async with contextlib.aclosing(events):
            async for event in events:
                target.heard_at = time.monotonic()
                await answer.put(_checked(event, answer), target.name)
        if not answer.ended:
            raise TransportError("its stream ended without a terminal event")

    def _broken(
        self, target: Target, cause: Cause, reason: str, answer: Answer
    ) -> _Elsewhere | UnavailableError:
        self._pool.failed(target, reason)
        self._metrics.failures.labels(cause).inc()
        log.warning("target failed a request", target=target.name, cause=cause, reason=reason)
        if answer.begun:
            return UnavailableError(f"target {target.name} failed in the middle of the answer")
        message = f"target {target.name} failed; try again"
        return _Elsewhere(UnavailableError(message, retry_after_s=RETRY_AFTER_S))


def _checked(event: Event, answer: Answer) -> Event:
    """Raises StarsdError for an event that is out of order or reports an unasked cancellation."""
    if isinstance(event, Error):
        if answer.begun:
            return event
        raise RemoteError(event.error)
    if isinstance(event, Begin) == answer.begun:
        raise ProtocolError(f"{type(event).__name__.lower()} is out of order")
    if isinstance(event, Done) and event.reason is FinishReason.CANCELLED:
        raise UnavailableError("the target cancelled the request")
    return event
