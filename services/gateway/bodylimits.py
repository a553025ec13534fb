"""Limits on how large a request body may be, and how long it may take to arrive.

Starlette's own limit answers in plain text, not in our error shape.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_WITHIN_S = 60.0


class BodyLimits:
    """Middleware. Whoever reads too large or too slow a body gets an HTTPException (413, 408)."""

    def __init__(self, app: ASGIApp, max_bytes: int, within_s: float = BODY_WITHIN_S) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            receive = _Body(receive, self._max_bytes, self._within_s).receive
        await self._app(scope, receive, send)


class _Body:
    def __init__(self, receive: Receive, max_bytes: int, within_s: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._within_s = within_s
        self._deadline = asyncio.get_running_loop().time() + within_s
        self._size = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            detail = f"the body took more than {self._within_s:g} s"
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail) from error
        self._complete = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._max_bytes:
            detail = f"the body is over {self._max_bytes} bytes"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        return message
