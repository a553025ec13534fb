"""The requests a target's front has open, from admission to their terminal event.

Each has a bounded queue of events on the way to its reader. Whatever happens to it, exactly one
terminal event is queued, the loop is told to stop computing, and it is forgotten when the loop
says that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import islice

import structlog

from services.target.assembly import Assembly
from starsd.errors import (
    INTERNAL_ERROR,
    DeadlineError,
    ErrorBody,
    OverloadedError,
    TransportError,
    UnavailableError,
)
from starsd.metrics import Outcome, RequestClock, RequestMetrics, outcome_of
from starsd.protocol.events import Done, Error, Event, Usage
from starsd.protocol.frames import (
    Cancel,
    Emitted,
    Failed,
    Finished,
    FinishReason,
    Submit,
    ToFront,
    ToLoop,
)

MAX_EVENTS = 1024
"""Events a reader may lag behind; one step of one request is one event."""
RETRY_AFTER_S = 1.0

log = structlog.get_logger()


@dataclass(eq=False)
class Answer:
    """One request. ``events`` has one place more than ``MAX_EVENTS``, for the terminal event."""

    id: str
    events: asyncio.Queue[Event]
    clock: RequestClock
    assembly: Assembly | None = None
    prompt_tokens: int = 0
    ended: bool = False
    cancelled: bool = False
    running: bool = False
    deadline: asyncio.TimerHandle | None = None

    async def read(self) -> AsyncIterator[list[Event]]:
        """Everything that waits, again and again, through the terminal event."""
        while True:
            batch = [await self.events.get()]
            while not self.events.empty():
                batch.append(self.events.get_nowait())
            yield batch
            if isinstance(batch[-1], Done | Error):
                return


class Requests:
    """All open requests of one front; ids are drawn here, never the client's.

    The loop serves requests in order, ``capacity`` at once, so the first ``capacity`` are those
    running and the rest wait. ``capacity`` is known, and set, once the loop has started.
    """

    def __init__(
        self,
        send: Callable[[ToLoop], None],
        metrics: RequestMetrics,
        *,
        max_waiting: int,
        timeout_s: float,
        max_events: int = MAX_EVENTS,
    ) -> None:
        """``send`` reaches the loop and raises TransportError when it is gone."""
        self.capacity = 0
        self._send = send
        self._metrics = metrics
        self._max_waiting = max_waiting
        self._timeout_s = timeout_s
        self._max_events = max_events
        self._open: dict[str, Answer] = {}
        self._none_open = asyncio.Event()
        self._none_open.set()

    @property
    def running(self) -> int:
        return min(len(self._open), self.capacity)

    @property
    def waiting(self) -> int:
        return len(self._open) - self.running

    def admit(self) -> Answer:
        """Take a place. Raises OverloadedError when as many wait as may."""
        limit = self.capacity + self._max_waiting
        if len(self._open) >= limit:
            message = f"this target holds {limit} requests, its limit; try again later"
            raise OverloadedError(message, retry_after_s=RETRY_AFTER_S)
        events: asyncio.Queue[Event] = asyncio.Queue(self._max_events + 1)
        answer = Answer(uuid.uuid4().hex, events, RequestClock(self._metrics))
        self._open[answer.id] = answer
        self._none_open.clear()
        self._advance_queue()
        return answer

    def refuse(self, answer: Answer, outcome: Outcome) -> None:
        """Give the place of a request back that never reached the loop."""
        self._take_out(answer.id)
        if not answer.ended:
            self._end(answer, None, outcome)

    async def drained(self, deadline_s: float) -> None:
        """Wait until none is open, then end those that still are with an error."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._none_open.wait()
        self.fail_all(UnavailableError("the target is shutting down").body())

    def submit(self, answer: Answer, submit: Submit, assembly: Assembly, first: Event) -> None:
        """Hand it to the loop. Raises TransportError or UnavailableError: it is not there."""
        if answer.ended:
            raise UnavailableError("the step loop ended before the request reached it")
        self._send(submit)
        answer.assembly = assembly
        answer.prompt_tokens = len(submit.prompt)
        answer.events.put_nowait(first)
        loop = asyncio.get_running_loop()
        answer.deadline = loop.call_later(self._timeout_s, self._expire, answer)

    def abandon(self, answer: Answer) -> None:
        """Its reader is gone. Nothing happens to a request that has ended."""
        if not answer.ended:
            self._end(answer, None, Outcome.CANCELLED)
            self._cancel(answer)

    def handle(self, message: ToFront) -> None:
        """A frame of the loop about one request; late ones about forgotten requests are dropped."""
        match message:
            case Emitted():
                self._emitted(message)
            case Finished():
                self._finished(message)
            case Failed(id=str(key), error=error):
                self._fail(self._take_out(key), error)
            case _:
                raise AssertionError(f"no request's frame: {message}")

    def fail_all(self, error: ErrorBody) -> None:
        """The loop is gone: every open request ends with this error."""
        for key in list(self._open):
            self._fail(self._take_out(key), error)

    def _emitted(self, message: Emitted) -> None:
        answer = self._open.get(message.id)
        if answer is None or answer.ended or answer.assembly is None:
            return
        try:
            delta = answer.assembly.push(message.tokens, message.origins)
        except Exception:
            log.exception("detokenising failed", request=answer.id)
            self._give_up(answer, INTERNAL_ERROR)
            return
        answer.clock.tokens(len(delta.ids))
        if answer.events.qsize() >= self._max_events:
            lag = f"the reader lags {self._max_events} events behind; the request was cancelled"
            self._give_up(answer, TransportError(lag).body())
        elif delta.ids:
            answer.events.put_nowait(delta)
        if answer.assembly.stopped:
            self._cancel(answer)

    def _finished(self, message: Finished) -> None:
        answer = self._take_out(message.id)
        if answer is None or answer.ended or answer.assembly is None:
            return
        text, reason = answer.assembly.finish(message.reason)
        if reason is FinishReason.CANCELLED:
            self._fail(answer, UnavailableError("the target cancelled the request").body())
            return
        tokens = answer.assembly.completion_tokens
        usage = Usage(prompt_tokens=answer.prompt_tokens, completion_tokens=tokens)
        done = Done(text=text, reason=reason, usage=usage, stats=message.stats)
        self._end(answer, done, Outcome.OK)

    def _expire(self, answer: Answer) -> None:
        late = DeadlineError(f"the request took longer than {self._timeout_s:g} s")
        self._give_up(answer, late.body())

    def _give_up(self, answer: Answer, error: ErrorBody) -> None:
        self._fail(answer, error)
        self._cancel(answer)

    def _fail(self, answer: Answer | None, error: ErrorBody) -> None:
        if answer is not None and not answer.ended:
            self._end(answer, Error(error=error), outcome_of(error))

    def _end(self, answer: Answer, event: Event | None, outcome: Outcome) -> None:
        """The one place where a request ends; ``event`` None: nobody reads any more."""
        answer.ended = True
        if answer.deadline is not None:
            answer.deadline.cancel()
        if event is not None:
            answer.events.put_nowait(event)
        answer.clock.end(outcome, answer.prompt_tokens)

    def _take_out(self, key: str) -> Answer | None:
        """Its place is free: the loop computes nothing for it any more."""
        answer = self._open.pop(key, None)
        if not self._open:
            self._none_open.set()
        self._advance_queue()
        return answer

    def _advance_queue(self) -> None:
        """The last of the first ``capacity`` requests is the one that may just have got a slot."""
        last = next(islice(self._open.values(), max(0, self.running - 1), None), None)
        if last is not None and self.running and not last.running:
            last.running = True
            last.clock.admitted()

    def _cancel(self, answer: Answer) -> None:
        if not answer.cancelled:
            answer.cancelled = True
            with contextlib.suppress(TransportError):  # a dead loop fails all requests by itself
                self._send(Cancel(id=answer.id))
