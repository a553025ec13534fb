"""An answer as one body, or as server-sent events.

The stream: what the API has before any text, chunks with text, for each choice one chunk with
finish_reason, a usage chunk if asked for, ``[DONE]``. An error before the first event is an HTTP
error; after the headers it is one ``{"error": ...}`` frame, and then the stream closes without
``[DONE]``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.gateway.answers import Answer, Answers
from services.gateway.disconnect import unless_gone
from services.gateway.responses import Extension, Heading, Pieces, Speculation, UsageBody, Whole
from services.gateway.writer import Writer
from starsd.errors import RemoteError
from starsd.httperrors import error_response
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Generate, Usage

KEEPALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
SLACK_S = 5.0
"""What the reader of an answer gets beyond the answer's own deadline, to take the rest of it."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Asked:
    """What targets are asked, and how the answer is worded: a writer for each choice."""

    requests: Sequence[Generate]
    heading: Heading
    writers: Sequence[Writer]
    include_usage: bool = False
    usage_in_every_chunk: bool = False
    origins: bool = False


async def complete(answers: Answers, asked: Asked) -> Whole:
    """The whole answer. Raises RemoteError with whatever error ended it."""
    reasons: dict[int, str] = {}
    async with answers.open(asked.requests) as answer:
        while not answer.over:
            event = await answer.next()
            if isinstance(event, Begin):
                asked.heading.note(event)
            elif isinstance(event, Error):
                raise RemoteError(event.error)
            elif isinstance(event, Delta | Done):
                asked.writers[event.choice].take(event)
            if isinstance(event, Done):
                reasons[event.choice] = event.reason
    choices = [writer.whole(reasons[writer.index]) for writer in asked.writers]
    return asked.heading.whole_of(choices, answer.tally)


class Frames:
    """Events of one answer to the bytes of its stream."""

    def __init__(self, asked: Asked, answer: Answer) -> None:
        self._asked = asked
        self._answer = answer
        self._prompts = [0] * len(asked.writers)
        self._tokens = [0] * len(asked.writers)

    def of(self, event: Event) -> bytes:
        """The frames of one event; empty when it releases no text."""
        if isinstance(event, Begin):
            return self._begin(event)
        if isinstance(event, Delta):
            self._tokens[event.choice] += len(event.ids)
            return self._pieces(event)
        if isinstance(event, Done):
            return self._pieces(event) + self._end(event)
        return _frame(event.error.as_json())

    def _begin(self, begin: Begin) -> bytes:
        self._asked.heading.note(begin)
        choices = range(begin.choice, begin.choice + self._asked.requests[0].n)
        for choice in choices:
            self._prompts[choice] = len(begin.prompt_ids)
        openings = [self._asked.writers[choice].opening() for choice in choices]
        return b"".join(self._chunk(opening) for opening in openings if opening is not None)

    def _pieces(self, part: Delta | Done) -> bytes:
        """Origins go with the first: they are those of the whole part."""
        writer = self._asked.writers[part.choice]
        writer.take(part)
        choices = writer.pieces()
        if not choices:
            return b""
        origins = Pieces.of(part) if self._asked.origins else UNSET
        return self._chunk(choices[0], origins) + b"".join(map(self._chunk, choices[1:]))

    def _chunk(self, choice: Any, starsd: Extension = UNSET) -> bytes:
        usage = self._usage_so_far(choice.index) if self._asked.usage_in_every_chunk else None
        return _frame(self._asked.heading.chunk_of([choice], usage, starsd))

    def _usage_so_far(self, choice: int) -> UsageBody:
        prompt, tokens = self._prompts[choice], self._tokens[choice]
        return UsageBody.of(Usage(prompt_tokens=prompt, completion_tokens=tokens))

    def _end(self, done: Done) -> bytes:
        """The last choice to end also ends the stream."""
        asked, answer = self._asked, self._answer
        last = asked.writers[done.choice].last(done.reason)
        if not answer.over:
            return self._chunk(last)
        stats = Speculation.of(answer.tally)
        if not asked.include_usage:
            return self._chunk(last, stats) + DONE
        usage = asked.heading.chunk_of([], UsageBody.of(answer.tally.usage), stats)
        return self._chunk(last) + _frame(usage) + DONE


def _frame(body: object) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


class EventStream(Response):
    """A response that holds its headers back until it knows whether it is an error.

    It waits at most ``keepalive_s`` with that; then comments keep the connection alive. When the
    client leaves, the targets' streams are closed at once.
    """

    media_type = "text/event-stream"

    def __init__(self, answers: Answers, asked: Asked, keepalive_s: float, limit_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answers = answers
        self._asked = asked
        self._keepalive_s = keepalive_s
        self._limit_s = limit_s + SLACK_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(TimeoutError):
            # A client that stops reading blocks ``send``; the server then cuts it off.
            async with asyncio.timeout(self._limit_s):
                await unless_gone(receive, self._respond(scope, receive, send))

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._answers.open(self._asked.requests) as answer:
            first = await answer.next(self._keepalive_s)
            if isinstance(first, Error):
                await error_response(first.error)(scope, receive, send)
                return
            await send(self._start(answer))
            async with contextlib.aclosing(self._parts(answer, first)) as parts:
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _start(self, answer: Answer) -> dict[str, object]:
        """With the target's name, if it is known yet."""
        if targets := ", ".join(answer.tally.targets):
            self.headers["X-Starsd-Target"] = targets
        return {"type": "http.response.start", "status": 200, "headers": self.raw_headers}

    async def _parts(self, answer: Answer, event: Event | None) -> AsyncGenerator[bytes, None]:
        frames = Frames(self._asked, answer)
        while True:
            if event is None:
                yield KEEPALIVE
            elif part := frames.of(event):
                yield part
            if answer.over:
                return
            event = await answer.next(self._keepalive_s)
