"""A chat server whose answers are right, or wrong in one named way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from starsd.service import serving

MAX_TOKENS = 8
TOKENS = 6
TEXTS = ("Hello", " there", "!")
USAGE = {"prompt_tokens": 5, "completion_tokens": TOKENS, "total_tokens": 5 + TOKENS}
STARSD = {"rounds": 2, "proposed": 4, "accepted": 3, "fallbacks": 0, "target": "t0"}
DONE = b"data: [DONE]\n\n"
CUT = b""
"""In place of a frame: the connection ends here."""


def frame(**chunk: Any) -> bytes:
    return b"data: " + json.dumps({"id": "chatcmpl-1", **chunk}).encode() + b"\n\n"


def delta(text: str | None, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    return frame(choices=[choice], usage=None)


def usage(**changes: Any) -> bytes:
    return frame(choices=[], usage={**USAGE, **changes}, starsd=STARSD)


def stream(*, texts: Sequence[str] = TEXTS, reason: str = "stop", **changes: Any) -> list[bytes]:
    """A whole stream; ``changes`` are to its usage."""
    return [delta(""), *map(delta, texts), delta(None, reason), usage(**changes), DONE]


def completion(text: str | None = "".join(TEXTS), reason: str = "stop", **changes: Any) -> bytes:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": reason}
    return json.dumps(
        {"id": "chatcmpl-1", "choices": [choice], "usage": {**USAGE, **changes}, "starsd": STARSD}
    ).encode()


@dataclass
class FakeGateway:
    """``answer`` gives the parts of each answer, ``pause_s`` apart."""

    answer: Callable[[bool], Sequence[bytes]]
    status: int = 200
    pause_s: float = 0.0
    key: str = ""
    """What each request must have."""
    asked: int = 0
    """Chat requests that came."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with serving(self, "127.0.0.1", 0) as port:
            yield f"http://127.0.0.1:{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if scope["path"] == "/v1/models":
            await _send(send, 200, [b'{"object": "list", "data": [{"id": "fake"}]}'], 0)
            return
        request = json.loads(body)
        assert dict(scope["headers"]).get(b"authorization", b"").decode() == self.key
        assert request["model"] == "fake"
        assert request["max_tokens"] == MAX_TOKENS
        self.asked += 1
        await _send(send, self.status, self.answer(request.get("stream", False)), self.pause_s)


def good(streamed: bool) -> list[bytes]:
    return stream() if streamed else [completion()]


async def _send(send: Send, status: int, parts: Sequence[bytes], pause_s: float) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    for part in parts:
        if part == CUT:
            return
        await asyncio.sleep(pause_s)
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)
