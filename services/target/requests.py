"""The requests a target's front has open, from admission to their terminal event.

Each has a bounded queue of events on the way to its reader. Whatever happens to it, exactly one
terminal event a choice is queued, or one error for all; the loop is told to stop computing, and a
choice is forgotten when the loop says that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from services.target.assembly import Assembly
from starsd.errors import (
    INTERNAL_ERROR,
    DeadlineError,
    ErrorBody,
    OverloadedError,
    RequestError,
    TransportError,
    UnavailableError,
)
from starsd.metrics import Outcome, RequestClock, RequestMetrics, outcome_of
from starsd.protocol.events import Begin, Done, Error, Event, Usage
from starsd.protocol.frames import (
    Admitted,
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
class Choice:
    """One of the answers to a request: to the loop, a request of its own."""

    id: str
    answer: Answer
    assembly: Assembly | None = None
    running: bool = False
    ended: bool = False
    cancelled: bool = False


@dataclass(eq=False)
class Answer:
    """One request. ``events`` has places for every choice's terminal event, and for an error,
    beyond ``max_events``."""

    max_events: int
    events: asyncio.Queue[Event]
    clock: RequestClock
    choices: list[Choice] = field(default_factory=list)
    prompt_tokens: int = 0
    ended: bool = False
    deadline: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, choices: int, max_events: int, clock: RequestClock) -> Answer:
        most = choices * max_events
        answer = cls(most, asyncio.Queue(most + choices + 1), clock)
        answer.choices = [Choice(uuid.uuid4().hex, answer) for _ in range(choices)]
        return answer

    @property
    def id(self) -> str:
        """For logs."""
        return self.choices[0].id

    async def read(self) -> AsyncIterator[list[Event]]:
        """Everything that waits, again and again, through the last terminal event."""
        left = len(self.choices)
        while left > 0:
            batch = [await self.events.get()]
            while not self.events.empty():
                batch.append(self.events.get_nowait())
            yield batch
            left -= sum(isinstance(event, Done) for event in batch)
            if isinstance(batch[-1], Error):
                return


class Requests:
    """All open requests of one front; ids are drawn here, never the client's.

    The loop runs at most ``capacity`` choices at once, which is known, and set, once it has
    started. Those it has not yet admitted wait.
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
        self._open: dict[str, Choice] = {}
        self._none_open = asyncio.Event()
        self._none_open.set()

    @property
    def running(self) -> int:
        return sum(choice.running for choice in self._open.values())

    @property
    def waiting(self) -> int:
        return len(self._open) - self.running

    def admit(self, choices: int = 1) -> Answer:
        """Take a place for each choice.

        Raises:
            OverloadedError: as many wait as may.
            RequestError: there will never be so many places.
        """
        limit = self.capacity + self._max_waiting
        if choices > limit:
            raise RequestError(f"n={choices}: this target holds {limit} answers at most", param="n")
        if len(self._open) + choices > limit:
            message = f"this target holds {limit} requests, its limit; try again later"
            raise OverloadedError(message, retry_after_s=RETRY_AFTER_S)
        answer = Answer.of(choices, self._max_events, RequestClock(self._metrics, choices))
        self._open.update((choice.id, choice) for choice in answer.choices)
        self._none_open.clear()
        return answer

    def refuse(self, answer: Answer, outcome: Outcome) -> None:
        """Give the places of a request back that never reached the loop."""
        for choice in answer.choices:
            self._take_out(choice.id)
        if not answer.ended:
            self._end(answer, None, outcome)

    async def drained(self, deadline_s: float) -> None:
        """Wait until none is open, then end those that still are with an error."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._none_open.wait()
        self.fail_all(UnavailableError("the target is shutting down").body())

    def submit(
        self,
        answer: Answer,
        submits: Sequence[Submit],
        assemblies: Sequence[Assembly],
        first: Begin,
    ) -> None:
        """Hand its choices to the loop, under their ids.

        Raises TransportError or UnavailableError: the loop is not there.
        """
        if answer.ended:
            raise UnavailableError("the step loop ended before the request reached it")
        for choice, submit, assembly in zip(answer.choices, submits, assemblies, strict=True):
            self._send(submit)
            choice.assembly = assembly
        answer.prompt_tokens = len(first.prompt_ids)
        answer.events.put_nowait(first)
        loop = asyncio.get_running_loop()
        answer.deadline = loop.call_later(self._timeout_s, self._expire, answer)

    def abandon(self, answer: Answer) -> None:
        """Its reader is gone. Nothing happens to a request that has ended."""
        if not answer.ended:
            self._end(answer, None, Outcome.CANCELLED)

    def handle(self, message: ToFront) -> None:
        """A frame of the loop about one request; late ones about forgotten requests are dropped."""
        match message:
            case Admitted():
                self._admitted(message)
            case Emitted():
                self._emitted(message)
            case Finished():
                self._finished(message)
            case Failed(id=str(key), error=error):
                self._lose(key, error)
            case _:
                raise AssertionError(f"no request's frame: {message}")

    def fail_all(self, error: ErrorBody) -> None:
        """The loop is gone: every open request ends with this error."""
        for key in list(self._open):
            self._lose(key, error)

    def _admitted(self, message: Admitted) -> None:
        if choice := self._open.get(message.id):
            if not any(other.running for other in choice.answer.choices):
                choice.answer.clock.admitted()
            choice.running = True

    def _emitted(self, message: Emitted) -> None:
        choice = self._open.get(message.id)
        if choice is None or choice.answer.ended or choice.assembly is None:
            return
        answer = choice.answer
        try:
            delta = choice.assembly.push(message.tokens, message.origins, message.logprobs)
        except Exception:
            log.exception("detokenising failed", request=answer.id)
            self._fail(answer, INTERNAL_ERROR)
            return
        answer.clock.tokens(len(delta.ids))
        if answer.events.qsize() >= answer.max_events:
            lag = f"{answer.max_events} events behind; the request was cancelled"
            self._fail(answer, TransportError(f"the reader lags {lag}").body())
        elif delta.ids:
            answer.events.put_nowait(delta)
        if choice.assembly.stopped:
            self._cancel(choice)

    def _finished(self, message: Finished) -> None:
        choice = self._take_out(message.id)
        if choice is None or choice.answer.ended or choice.assembly is None:
            return
        done = _done(choice.assembly, choice.answer.prompt_tokens, message)
        if done.reason is FinishReason.CANCELLED:
            error = UnavailableError("the target cancelled the request")
            self._fail(choice.answer, error.body())
            return
        choice.ended = True
        if all(other.ended for other in choice.answer.choices):
            self._end(choice.answer, done, Outcome.OK)
        else:
            choice.answer.events.put_nowait(done)

    def _lose(self, key: str, error: ErrorBody) -> None:
        """The loop does nothing more for this choice; without it the answer is none."""
        if choice := self._take_out(key):
            self._fail(choice.answer, error)

    def _expire(self, answer: Answer) -> None:
        late = DeadlineError(f"the request took longer than {self._timeout_s:g} s")
        self._fail(answer, late.body())

    def _fail(self, answer: Answer, error: ErrorBody) -> None:
        if not answer.ended:
            self._end(answer, Error(error=error), outcome_of(error))

    def _end(self, answer: Answer, event: Event | None, outcome: Outcome) -> None:
        """The one place where a request ends; ``event`` None: nobody reads any more. The loop
        drops what it still computes of it."""
        answer.ended = True
        if answer.deadline is not None:
            answer.deadline.cancel()
        if event is not None:
            answer.events.put_nowait(event)
        answer.clock.end(outcome, answer.prompt_tokens)
        for choice in answer.choices:
            if choice.id in self._open:
                self._cancel(choice)

    def _take_out(self, key: str) -> Choice | None:
        """Its place is free: the loop computes nothing for it any more."""
        choice = self._open.pop(key, None)
        if not self._open:
            self._none_open.set()
        return choice

    def _cancel(self, choice: Choice) -> None:
        if not choice.cancelled:
            choice.cancelled = True
            with contextlib.suppress(TransportError):  # a dead loop fails all requests by itself
                self._send(Cancel(id=choice.id))


def _done(assembly: Assembly, prompt_tokens: int, message: Finished) -> Done:
    text, reason = assembly.finish(message.reason)
    usage = Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=assembly.completion_tokens,
        cached_tokens=message.stats.cached_tokens,
    )
    return Done(
        choice=assembly.choice,
        text=text,
        calls=assembly.calls(),
        reason=reason,
        usage=usage,
        stats=message.stats,
    )
