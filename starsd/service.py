"""Running a service: HTTP servers in one asyncio loop, health and metrics, signals, shutdown.

A service opens what it needs in its own ``async with`` blocks, among them ``serving``; there is no
ASGI lifespan. Health can so be served while a model still loads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import structlog
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from starsd.errors import ConfigError
from starsd.httperrors import exception_handlers
from starsd.log import configure_logging
from starsd.metrics import CONTENT_TYPE
from starsd.settings.common import ServiceSettings

log = structlog.get_logger()

CANCEL_S = 5
"""Seconds that what was cancelled gets to end."""
KEEP_ALIVE_S = 30
BACKLOG = 2048
TICK_S = 1.0


@dataclass(frozen=True)
class Readiness:
    """Whether to send traffic here; ``details`` go into the answer of /health/ready.

    A degraded service is ready: it serves, with something missing. One that is not ``live`` is
    beyond recovery and should be restarted.
    """

    ready: bool
    degraded: bool = False
    live: bool = True
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        if not self.ready:
            return "unavailable"
        return "degraded" if self.degraded else "ready"


def health_routes(readiness: Callable[[], Readiness]) -> list[Route]:
    """GET /health/live and /health/ready; /health, which vLLM's users ask, is the latter."""

    async def live(_request: Request) -> Response:
        alive = readiness().live
        code = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"status": "live" if alive else "hung"}, code)

    async def ready(_request: Request) -> Response:
        state = readiness()
        code = HTTPStatus.OK if state.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"status": state.status, **state.details}, code)

    routes = {"/health/live": live, "/health/ready": ready, "/health": ready}
    return [Route(path, answer) for path, answer in routes.items()]


def metrics_app(readiness: Callable[[], Readiness], exposition: Callable[[], bytes]) -> ASGIApp:
    """What the metrics port serves: health, and /metrics as Prometheus text."""

    async def metrics(_request: Request) -> Response:
        return Response(exposition(), headers={"Content-Type": CONTENT_TYPE})

    routes = [*health_routes(readiness), Route("/metrics", metrics)]
    return Starlette(routes=routes, exception_handlers=exception_handlers())


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would fight over the process's one set, and
    without its polling: it ends when told to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # renews the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._ending.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, host: str, port: int, *, what: str = "http", drain_s: int = CANCEL_S
) -> AsyncIterator[int]:
    """Serve an app until the block ends; yields the port (the real one where ``port`` is 0).

    At the end no new connections are taken, open requests get ``drain_s`` seconds, and are then
    cancelled and awaited.

    Raises:
        ConfigError: the address cannot be bound.
    """
    listener = _bind(host, port)
    actual: int = listener.getsockname()[1]
    server = _Server(_uvicorn_config(app, drain_s))
    task = asyncio.create_task(server.serve([listener]), name=f"serve {what}")
    try:
        await _started(server, task)
        log.info("listening", what=what, url=f"http://{_url_host(host)}:{actual}")
        yield actual
    finally:
        server.end()
        await task
        await _end(server.server_state.tasks)


def _uvicorn_config(app: ASGIApp, drain_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _started(server: _Server, task: asyncio.Task[None]) -> None:
    ready = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(ready)
    if task.done():
        task.result()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Requests that uvicorn cancelled without waiting for them."""
    if tasks:
        await asyncio.wait(set(tasks), timeout=CANCEL_S)


async def cancel(*tasks: asyncio.Task[Any], within_s: float = CANCEL_S) -> None:
    """Cancel tasks and wait for their end; what they raise is theirs and is dropped here."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=within_s)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


@contextlib.contextmanager
def stop_on_signal() -> Iterator[asyncio.Event]:
    """An event that SIGTERM or SIGINT sets; a second SIGINT ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, functools.partial(_interrupt, loop, stop))
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)


def _interrupt(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    stop.set()
    loop.remove_signal_handler(signal.SIGINT)


def run(
    name: str, settings: ServiceSettings, main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
) -> None:
    """Run a service on uvloop until its main coroutine returns; it gets the stop event.

    Raises:
        ConfigError: it cannot start.
    """
    configure_logging(name, settings.log_level, as_json=settings.log_json)

    async def body() -> None:
        with stop_on_signal() as stop:
            await main(stop)

    uvloop.run(body())


async def until(stop: asyncio.Event, *works: Awaitable[Any]) -> None:
    """Run background work until ``stop`` is set or some of it ends, which is an error of its own.

    All of it is cancelled and awaited before this returns.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await cancel(waiter, *tasks)
