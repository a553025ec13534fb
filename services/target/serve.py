"""Wiring of a target: step loop, registry, HTTP, shutdown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from services.target.api import build_app
from services.target.front import TargetFront
from starsd.engine.interface import Tokenizer
from starsd.engine.loading import load_model
from starsd.process.front import connect_registry
from starsd.process.spawn import spawn_loop
from starsd.service import metrics_app, serving, until
from starsd.settings.target import TargetSettings

LoopMain = Callable[[TargetSettings, socket.socket], None]


def load_tokenizer(settings: TargetSettings) -> Tokenizer:
    """Raises ConfigError."""
    return load_model(settings).tokenizer()


async def serve(
    settings: TargetSettings,
    loop_main: LoopMain,
    stop: asyncio.Event,
    tokenizer: Callable[[TargetSettings], Tokenizer] = load_tokenizer,
) -> None:
    """Serve until ``stop``; ``settings`` have their identity.

    Raises:
        StarsdError: the loop could not start, or died.
    """
    process = spawn_loop(loop_main, settings, settings.cores)
    front = TargetFront(settings, process, connect_registry(settings), tokenizer)
    try:
        await _serve_http(settings, front, stop)
    finally:
        await front.stop()


async def _serve_http(settings: TargetSettings, front: TargetFront, stop: asyncio.Event) -> None:
    """Health and metrics outlive the API: whoever watches sees the target drain."""
    metrics = metrics_app(front.readiness, front.exposition)
    async with (
        serving(metrics, settings.host, settings.metrics_port, what="metrics"),
        serving(build_app(front), settings.host, settings.port) as front.port,
    ):
        try:
            await until(stop, front.run())
        finally:
            await front.drain(settings.drain_s)
