"""The target's internal HTTP API: the gateway posts requests, and reads streams of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
import structlog
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from services.target.front import TargetFront
from services.target.requests import Answer
from starsd.errors import RequestError
from starsd.httperrors import exception_handlers
from starsd.protocol.events import GENERATE_PATH, INFO_PATH, MEDIA_TYPE
from starsd.protocol.tokenizing import DETOKENIZE_PATH, TOKENIZE_PATH
from starsd.service import health_routes

MAX_BODY_BYTES = 16 * 1024 * 1024
READ_GRACE_S = 10.0
"""How long after the end of a request its reader may take to fetch the rest."""

log = structlog.get_logger()


def build_app(front: TargetFront) -> FastAPI:
    """Errors before the stream are HTTP errors of the one shape; later ones are events."""
    app = FastAPI(openapi_url=None, exception_handlers=exception_handlers())
    app.router.routes.extend(health_routes(front.readiness))

    @app.post(GENERATE_PATH)
    async def generate(request: Request) -> Response:
        answer = await front.generate(await _body(request))
        read_s = front.request_timeout_s + READ_GRACE_S
        return EventStream(answer, front.requests.abandon, read_s)

    @app.post(TOKENIZE_PATH)
    async def tokenize(request: Request) -> Response:
        return _json(await front.tokenize(await _body(request)))

    @app.post(DETOKENIZE_PATH)
    async def detokenize(request: Request) -> Response:
        return _json(await front.detokenize(await _body(request)))

    @app.get(INFO_PATH)
    async def info() -> Response:
        return _json(front.info())

    return app


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


class EventStream(StreamingResponse):
    """Events as lines of JSON. However the response ends, ``on_close`` hears of it.

    Starlette alone does not say so: it drops a body iterator that waits in ``send``.
    """

    def __init__(self, answer: Answer, on_close: Callable[[Answer], None], read_s: float) -> None:
        self._lines = _lines(answer)
        super().__init__(self._lines, media_type=MEDIA_TYPE)
        self._answer = answer
        self._on_close = on_close
        self._read_s = read_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._read_s):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            log.warning("reader stuck", request=self._answer.id)
        finally:
            self._on_close(self._answer)
            await self._lines.aclose()


async def _lines(answer: Answer) -> AsyncGenerator[bytes, None]:
    encoder = msgspec.json.Encoder()
    async for events in answer.read():
        yield encoder.encode_lines(events)


async def _body(request: Request) -> bytes:
    """Raises RequestError for a body over ``MAX_BODY_BYTES``, or one that breaks off."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                raise RequestError(f"the body is over {MAX_BODY_BYTES} bytes")
    except ClientDisconnect as error:
        raise RequestError("the client left before its request was complete") from error
    return bytes(body)
