"""POST /v1/chat/completions: one answer as a whole, or as server-sent events.

The stream: a chunk with the role, chunks with text, one chunk with finish_reason, a usage chunk
if asked for, ``[DONE]``. An error before the first event is an HTTP error; after the headers it is
one ``{"error": ...}`` frame, and then the stream closes without finish_reason or ``[DONE]``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.answers import Answer, Answers
from services.gateway.disconnect import unless_gone
from services.gateway.responses import (
    ChunkChoice,
    ChunkDelta,
    Completion,
    Heading,
    speculation,
    usage_body,
)
from starsd.errors import RemoteError
from starsd.httperrors import error_response
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Generate

KEEPALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
SLACK_S = 5.0
"""What the reader of an answer gets beyond the answer's own deadline, to take the rest of it."""

_encode = msgspec.json.Encoder().encode


async def complete(answers: Answers, request: Generate) -> Completion:
    """The whole answer. Raises RemoteError with whatever error ended it."""
    heading = Heading(id=request.id, model=request.model)
    text: list[str] = []
    async with answers.open(request) as answer:
        while True:
            event = await answer.next()
            if isinstance(event, Begin):
                heading.fingerprint = event.fingerprint
            elif isinstance(event, Error):
                raise RemoteError(event.error)
            elif isinstance(event, Delta | Done):
                text.append(event.text)
            if isinstance(event, Done):
                stats = speculation(event.stats, answer.target)
                return heading.completion("".join(text), event.reason, event.usage, stats)


class Frames:
    """Events of one answer to the bytes of its stream."""

    def __init__(self, request: Generate, *, include_usage: bool) -> None:
        self._heading = Heading(id=request.id, model=request.model)
        self._include_usage = include_usage

    def of(self, event: Event, target: str) -> bytes:
        """The frames of one event; empty when it releases no text."""
        if isinstance(event, Begin):
            self._heading.fingerprint = event.fingerprint
            return self._chunk(ChunkDelta(role="assistant", content=""))
        if isinstance(event, Delta):
            return self._text(event.text)
        if isinstance(event, Done):
            return self._text(event.text) + self._end(event, target) + DONE
        return _frame(event.error.as_json())

    def _text(self, text: str) -> bytes:
        return self._chunk(ChunkDelta(content=text)) if text else b""

    def _chunk(self, delta: ChunkDelta) -> bytes:
        return _frame(self._heading.chunk(ChunkChoice(delta=delta)))

    def _end(self, done: Done, target: str) -> bytes:
        stats = speculation(done.stats, target)
        finish = ChunkChoice(delta=ChunkDelta(), finish_reason=done.reason)
        if not self._include_usage:
            return _frame(self._heading.chunk(finish, starsd=stats))
        usage = self._heading.chunk(usage=usage_body(done.usage), starsd=stats)
        return _frame(self._heading.chunk(finish)) + _frame(usage)


def _frame(body: object) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


class EventStream(Response):
    """A response that holds its headers back until it knows whether it is an error.

    It waits at most ``keepalive_s`` with that; then comments keep the connection alive. When the
    client leaves, the target's stream is closed at once.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        answers: Answers,
        request: Generate,
        frames: Frames,
        keepalive_s: float,
        limit_s: float,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answers = answers
        self._request = request
        self._frames = frames
        self._keepalive_s = keepalive_s
        self._limit_s = limit_s + SLACK_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(TimeoutError):
            # A client that stops reading blocks ``send``; the server then cuts it off.
            async with asyncio.timeout(self._limit_s):
                await unless_gone(receive, self._respond(scope, receive, send))

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answers.open(self._request) as answer:
            first = await answer.next(self._keepalive_s)
            if isinstance(first, Error):
                await error_response(first.error)(scope, receive, send)
                return
            await send(self._start())
            async with contextlib.aclosing(self._parts(answer, first)) as parts:
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _start(self) -> dict[str, object]:
        return {"type": "http.response.start", "status": 200, "headers": self.raw_headers}

    async def _parts(self, answer: Answer, event: Event | None) -> AsyncGenerator[bytes, None]:
        while True:
            if event is None:
                yield KEEPALIVE
            elif part := self._frames.of(event, answer.target):
                yield part
            if answer.terminal is not None:
                return
            event = await answer.next(self._keepalive_s)
