"""Wiring of a hub: step loop, registry, HTTP for health and metrics, shutdown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from starlette.applications import Starlette

from services.draft.front import DraftFront
from starsd.httperrors import exception_handlers
from starsd.process.front import connect_registry
from starsd.process.spawn import spawn_loop
from starsd.service import health_routes, metrics_app, serving, until
from starsd.settings.draft import DraftSettings

LoopMain = Callable[[DraftSettings, socket.socket], None]


async def serve(settings: DraftSettings, loop_main: LoopMain, stop: asyncio.Event) -> None:
    """Serve until ``stop``; ``settings`` have their identity.

    Raises:
        StarsdError: the loop could not start, or died.
    """
    process = spawn_loop(loop_main, settings, settings.cores)
    front = DraftFront(settings, process, connect_registry(settings))
    try:
        await _serve_http(settings, front, stop)
    finally:
        await front.stop()


async def _serve_http(settings: DraftSettings, front: DraftFront, stop: asyncio.Event) -> None:
    health = Starlette(
        routes=health_routes(front.readiness), exception_handlers=exception_handlers()
    )
    metrics = metrics_app(front.readiness, front.exposition)
    async with (
        serving(health, settings.host, settings.port),
        serving(metrics, settings.host, settings.metrics_port, what="metrics"),
    ):
        await until(asyncio.Event(), front.run(), _drained(front, stop))


async def _drained(front: DraftFront, stop: asyncio.Event) -> None:
    """Returns when it is time to end."""
    await stop.wait()
    await front.drain()
