"""The gateway put together: pool, registry, probes, upstream, HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.gateway.answers import Answers
from services.gateway.app import create_app
from services.gateway.metrics import GatewayMetrics
from services.gateway.pool import Pool
from services.gateway.probes import Prober, probe_client
from services.gateway.routing import Router
from services.gateway.tokens import Tokenizing
from starsd.process.heartbeat import Heartbeat, PodRegistry
from starsd.protocol.pods import Pod
from starsd.service import Readiness, cancel, metrics_app, serving
from starsd.settings.gateway import GatewaySettings
from starsd.upstream import Upstream


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves; ports are the real ones."""

    pool: Pool
    metrics: GatewayMetrics
    port: int
    metrics_port: int


@contextlib.asynccontextmanager
async def running_gateway(
    settings: GatewaySettings,
    registry: PodRegistry | None,
    *,
    stop: asyncio.Event | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[Gateway]:
    """A gateway that serves while the block runs; from ``stop`` on it is not ready.

    It closes ``registry``. Raises ConfigError if it cannot start.
    """
    pool = Pool(settings.targets, rng)
    metrics = GatewayMetrics(pool)
    tls = ssl.create_default_context()
    async with contextlib.AsyncExitStack() as stack:
        beat = await _start_heartbeat(stack, settings, registry, pool)
        await _start_probes(stack, settings, pool, tls)
        upstream = Upstream(settings.connect_timeout_s, tls)
        stack.push_async_callback(upstream.close)
        router = Router(pool, settings.prefix_margin)
        answers = Answers(pool, router, upstream, metrics, settings.request_timeout_s)
        tokenizing = Tokenizing(pool, upstream)

        def readiness() -> Readiness:
            return _readiness(pool, beat, stopping=stop is not None and stop.is_set())

        aside = metrics_app(readiness, metrics.exposition)
        app = create_app(settings, pool, answers, tokenizing, metrics, readiness)
        host = settings.host
        health = serving(aside, host, settings.metrics_port, what="health and metrics")
        main = serving(app, host, settings.port, what="OpenAI API", drain_s=settings.drain_s)
        metrics_port = await stack.enter_async_context(health)
        port = await stack.enter_async_context(main)
        yield Gateway(pool, metrics, port, metrics_port)


async def _start_heartbeat(
    stack: contextlib.AsyncExitStack,
    settings: GatewaySettings,
    registry: PodRegistry | None,
    pool: Pool,
) -> Heartbeat | None:
    """Reads the registry, publishes nothing. The first read may take as long as a connection."""
    if registry is None:
        return None
    beat = Heartbeat(registry, settings.heartbeat_s, 0.0, _nothing, pool.update)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.connect_timeout_s):
            await beat.beat()
    stack.push_async_callback(cancel, asyncio.create_task(beat.run(), name="heartbeat"))
    return beat


def _nothing() -> Pod | None:
    return None


async def _start_probes(
    stack: contextlib.AsyncExitStack, settings: GatewaySettings, pool: Pool, tls: ssl.SSLContext
) -> None:
    client = await stack.enter_async_context(probe_client(settings.connect_timeout_s, tls))
    prober = Prober(
        pool,
        client,
        interval_s=settings.probe_interval_s,
        timeout_s=settings.connect_timeout_s,
        lost_s=settings.target_lost_s,
    )
    await prober.first_round()
    task = asyncio.create_task(prober.run(), name="probes")
    stack.push_async_callback(cancel, task)


def _readiness(pool: Pool, beat: Heartbeat | None, *, stopping: bool) -> Readiness:
    """Ready with one live target; degraded when another is down or the registry is."""
    live, known = len(pool.live), len(pool.targets)
    registry = "none" if beat is None else "connected" if beat.connected else "lost"
    return Readiness(
        ready=live > 0 and not stopping,
        degraded=live < known or registry == "lost",
        details={"targets_live": live, "targets_known": known, "registry": registry},
    )
