"""Request ids: the client's is echoed and logged, ours is the key of everything."""

from __future__ import annotations

import secrets

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"
COMPLETIONS = "/v1/completions"
MAX_CHARS = 200


def new_id(path: str) -> str:
    kind = "cmpl" if path == COMPLETIONS else "chatcmpl"
    return f"{kind}-{secrets.token_hex(16)}"


class RequestIds:
    """Middleware: every response carries X-Request-Id, the client's if it sent a usable one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ours = new_id(scope["path"])
        scope.setdefault("state", {})["request_id"] = ours
        theirs = _usable(Headers(scope=scope).get(HEADER, ""))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = theirs or ours
            await send(message)

        with structlog.contextvars.bound_contextvars(request=ours, client_request=theirs or None):
            await self._app(scope, receive, send_with_id)


def _usable(value: str) -> str:
    return value if value.isascii() and value.isprintable() and len(value) <= MAX_CHARS else ""
