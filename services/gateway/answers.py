"""From requests to one stream of events, whichever targets give it: choice, failover, deadline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from http import HTTPStatus

import structlog
from msgspec.structs import asdict, replace

from services.gateway.metrics import Cause, GatewayMetrics
from services.gateway.pool import RETRY_AFTER_S, Pool, Target
from services.gateway.routing import Router
from starsd.errors import (
    INTERNAL_ERROR,
    DeadlineError,
    ErrorBody,
    ProtocolError,
    RemoteError,
    StarsdError,
    TransportError,
    UnavailableError,
)
from starsd.metrics import Outcome, RequestClock, outcome_of
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Generate, Usage
from starsd.protocol.frames import FinishReason, RequestStats
from starsd.service import cancel
from starsd.upstream import Upstream

log = structlog.get_logger()

MAX_QUEUED_EVENTS = 64
TAIL_S = 0.5
"""How long a target may take to end its stream after the terminal event."""
ELSEWHERE = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""A target's refusals that say nothing about the request: another target may take it."""


class Tally:
    """What an answer has come to, over all its choices."""

    def __init__(self) -> None:
        self.usage = Usage(prompt_tokens=0, completion_tokens=0)
        self.stats = RequestStats()
        self.targets: dict[str, None] = {}
        """Names of those that serve it, in order."""

    def add(self, done: Done, *, first: bool) -> None:
        """``first`` of the choices that share a prompt: it counts once."""
        usage, own, stats = self.usage, done.usage, asdict(self.stats)
        self.usage = Usage(
            prompt_tokens=usage.prompt_tokens + first * own.prompt_tokens,
            completion_tokens=usage.completion_tokens + own.completion_tokens,
            cached_tokens=usage.cached_tokens + first * own.cached_tokens,
        )
        more = asdict(done.stats)
        self.stats = RequestStats(**{name: stats[name] + more[name] for name in stats})


class Part:
    """One request to one target. Its choices are numbered from ``first`` on within the answer."""

    def __init__(self, request: Generate, first: int) -> None:
        self.request = request
        self.first = first
        self.begun = False
        self.failed = False
        self.open = set(range(request.n))
        """Choices without a terminal event."""

    @property
    def ended(self) -> bool:
        return self.failed or not self.open

    def take(self, event: Event) -> Event:
        """The event as one of the whole answer.

        Raises StarsdError for one that is out of order or reports an unasked cancellation.
        """
        if isinstance(event, Error):
            if not self.begun:
                raise RemoteError(event.error)
            self.failed = True
            return event
        if isinstance(event, Begin) == self.begun or event.choice not in self.open:
            kind = type(event).__name__.lower()
            raise ProtocolError(f"{kind} of choice {event.choice} is out of order")
        if isinstance(event, Done):
            if event.reason is FinishReason.CANCELLED:
                raise UnavailableError("the target cancelled the request")
            self.open.remove(event.choice)
        self.begun = True
        return replace(event, choice=self.first + event.choice)


class Answer:
    """Events of one or several requests, as they come: for each a Begin, Deltas, and a Done for
    each choice; or one Error, which failures of every kind become, and then nothing more."""

    def __init__(self, requests: Sequence[Generate], clock: RequestClock) -> None:
        """``requests`` want as many choices each."""
        self._events: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED_EVENTS)
        self._clock = clock
        self.parts = [Part(asked, place * asked.n) for place, asked in enumerate(requests)]
        self._firsts = {part.first for part in self.parts}
        self._left = sum(request.n for request in requests)
        self._begun = False
        self.tally = Tally()
        """Of the events read so far."""
        self.error: Error | None = None
        """Once read."""

    @property
    def over(self) -> bool:
        """The last event has been read."""
        return self.error is not None or self._left == 0

    async def put(self, part: Part, event: Event, target: str = "") -> None:
        """Waits while the reader is behind."""
        if part.ended:
            return
        event = part.take(event)
        if isinstance(event, Begin):
            self.tally.targets[target] = None
            self._admitted()
        elif isinstance(event, Delta):
            self._clock.tokens(len(event.ids))
        await self._events.put(event)

    async def fail(self, error: ErrorBody) -> None:
        await self._events.put(Error(error=error))

    def _admitted(self) -> None:
        if not self._begun:
            self._begun = True
            self._clock.admitted()

    async def next(self, within_s: float | None = None) -> Event | None:
        """The next event, or None if none came in time."""
        try:
            async with asyncio.timeout(within_s):
                event = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(event, Error):
            self.error = event
        elif isinstance(event, Done):
            self._left -= 1
            self.tally.add(event, first=event.choice in self._firsts)
        return event

    def end(self) -> None:
        """Measure how it ended: without a terminal event the client left."""
        if self.error is not None:
            self._clock.end(outcome_of(self.error.error))
        elif self.over:
            self._clock.end(Outcome.OK, self.tally.usage.prompt_tokens)
        else:
            self._clock.end(Outcome.CANCELLED)


class _Elsewhere(Exception):
    """Nothing was delivered, so another target may try; ``error`` if there is none."""

    def __init__(self, error: StarsdError) -> None:
        super().__init__(error.message)
        self.error = error


class Answers:
    """Opens answers."""

    def __init__(
        self,
        pool: Pool,
        router: Router,
        upstream: Upstream,
        metrics: GatewayMetrics,
        timeout_s: float,
    ) -> None:
        self._pool = pool
        self._router = router
        self._upstream = upstream
        self._metrics = metrics
        self._timeout_s = timeout_s

    @contextlib.asynccontextmanager
    async def open(self, requests: Sequence[Generate]) -> AsyncIterator[Answer]:
        """An answer under way. Leaving the block early closes the targets' streams at once."""
        choices = sum(request.n for request in requests)
        answer = Answer(requests, RequestClock(self._metrics.requests, choices))
        pumps = [asyncio.create_task(self._pump(part, answer)) for part in answer.parts]
        try:
            yield answer
            if answer.error is None and answer.over:
                await asyncio.wait(pumps, timeout=TAIL_S)
        finally:
            answer.end()
            await cancel(*pumps)

    async def _pump(self, part: Part, answer: Answer) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._run(part, answer)
            return
        except TimeoutError:
            message = f"not finished within {self._timeout_s:g} s, the limit of a request"
            error = DeadlineError(message).body()
        except StarsdError as failure:
            error = failure.body()
        except Exception as crash:
            log.error("request crashed", request=part.request.id, exc_info=crash)
            error = INTERNAL_ERROR
        await answer.fail(error)

    async def _run(self, part: Part, answer: Answer) -> None:
        """On one target, or on a second one if the first delivered nothing."""
        first = self._choose(part.request)
        try:
            return await self._attempt(first, part, answer)
        except _Elsewhere as failure:
            second = self._second(part.request, first, failure.error)
        log.info("request moved", request=part.request.id, origin=first.name, to=second.name)
        self._metrics.moved.inc()
        try:
            await self._attempt(second, part, answer)
        except _Elsewhere as failure:
            raise failure.error from failure

    def _choose(self, request: Generate, but: Iterable[Target] = ()) -> Target:
        target, reason = self._router.choose(request, but)
        self._metrics.routed.labels(reason).inc()
        return target

    def _second(self, request: Generate, first: Target, failure: StarsdError) -> Target:
        try:
            return self._choose(request, but=(first,))
        except StarsdError:
            raise failure from None

    async def _attempt(self, target: Target, part: Part, answer: Answer) -> None:
        try:
            async with target.carrying():
                await self._relay(target, part, answer)
        except RemoteError as refusal:
            if refusal.body().status not in ELSEWHERE:
                raise
            self._metrics.failures.labels(Cause.REFUSED).inc()
            raise _Elsewhere(refusal) from refusal
        except TimeoutError as error:
            raise self._broken(target, Cause.LOST, "it stopped answering", part) from error
        except TransportError as error:
            cause = Cause.BROKEN if part.begun else Cause.UNREACHABLE
            raise self._broken(target, cause, error.message, part) from error
        except ProtocolError as error:
            raise self._broken(target, Cause.GARBAGE, error.message, part) from error

    async def _relay(self, target: Target, part: Part, answer: Answer) -> None:
        events = self._upstream.generate(target.url, part.request)
        async with contextlib.aclosing(events):
            async for event in events:
                target.heard_at = time.monotonic()
                await answer.put(part, event, target.name)
                if isinstance(event, Begin):
                    self._router.answered(part.request, target)
        if not part.ended:
            raise TransportError("its stream ended without a terminal event")

    def _broken(
        self, target: Target, cause: Cause, reason: str, part: Part
    ) -> _Elsewhere | UnavailableError:
        self._pool.failed(target, reason)
        self._metrics.failures.labels(cause).inc()
        log.warning("target failed a request", target=target.name, cause=cause, reason=reason)
        if part.begun:
            return UnavailableError(f"target {target.name} failed in the middle of the answer")
        message = f"target {target.name} failed; try again"
        return _Elsewhere(UnavailableError(message, retry_after_s=RETRY_AFTER_S))
