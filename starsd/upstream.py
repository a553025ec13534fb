"""One generate request to one target: an HTTP stream of typed events."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TypeVar

import httpx
import msgspec

from starsd.errors import ErrorBody, ProtocolError, RemoteError, StarsdError, TransportError
from starsd.protocol.events import GENERATE_PATH, Event, Generate

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_CONNECTIONS = 4096
KEEP_ALIVE_S = 10.0
"""Less than a target keeps an idle connection, so that none is reused while it closes."""


Told = TypeVar("Told")


class _Fault(msgspec.Struct):
    message: str
    type: str = "server_error"
    param: str | None = None
    code: str | None = None


class _Envelope(msgspec.Struct):
    error: _Fault


class Upstream:
    """The client of all targets. ``close`` it."""

    def __init__(self, connect_timeout_s: float, tls: ssl.SSLContext) -> None:
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=connect_timeout_s, pool=connect_timeout_s),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S),
            verify=tls,
            trust_env=False,
        )
        self._events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

    async def close(self) -> None:
        await self._client.aclose()

    async def generate(self, url: str, request: Generate) -> AsyncGenerator[Event, None]:
        """The target's events; ``aclose`` closes the connection at once.

        Raises:
            RemoteError: the target refused, with its own error.
            TransportError: it cannot be reached, broke off, or answered with no error of ours.
            ProtocolError: what it sent is no event.
        """
        try:
            async with self._client.stream(
                "POST",
                url + GENERATE_PATH,
                content=msgspec.json.encode(request),
                headers={"Content-Type": "application/json"},
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    raise await _refusal(response)
                async with contextlib.aclosing(_lines(response)) as lines:
                    async for line in lines:
                        yield self._decode(line)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TransportError(f"{type(error).__name__}: {error}") from error

    async def call(
        self, url: str, path: str, body: msgspec.Struct, kind: type[Told], within_s: float
    ) -> Told:
        """One object for another. Raises as ``generate`` does."""
        content, headers = msgspec.json.encode(body), {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(within_s),
                self._client.stream("POST", url + path, content=content, headers=headers) as answer,
            ):
                if answer.status_code != HTTPStatus.OK:
                    raise await _refusal(answer)
                return msgspec.json.decode(await answer.aread(), type=kind)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise TransportError(f"{type(error).__name__}: {error}") from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ProtocolError(f"no {kind.__name__}: {error}") from error

    def _decode(self, line: bytes) -> Event:
        try:
            return self._events.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ProtocolError(f"no event: {error}") from error


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Split at newlines only: httpx's own line reader also splits inside text, at U+2028 say."""
    buffer = bytearray()
    async for part in response.aiter_bytes():
        buffer += part
        *lines, rest = buffer.split(b"\n")
        buffer = rest
        for line in lines:
            if line:
                yield bytes(line)
        if len(buffer) > MAX_LINE_BYTES:
            raise ProtocolError(f"an event is over {MAX_LINE_BYTES} bytes")


async def _refusal(response: httpx.Response) -> StarsdError:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part[: MAX_ERROR_BYTES - len(body)]
        if len(body) >= MAX_ERROR_BYTES:
            break
    try:
        fault = msgspec.json.decode(body, type=_Envelope).error
    except (msgspec.MsgspecError, RecursionError):
        return TransportError(f"status {response.status_code} without an error of ours")
    return RemoteError(
        ErrorBody(
            message=fault.message,
            type=fault.type,
            param=fault.param,
            code=fault.code,
            status=response.status_code,
            retry_after_s=_retry_after(response),
        )
    )


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None
