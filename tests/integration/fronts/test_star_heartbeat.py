"""Both fronts against a real Redis: they find each other, and outlive it."""

from __future__ import annotations

import asyncio
from typing import Any

from services.draft.serve import serve
from starsd.bus.registry import Registry
from starsd.bus.server import EmbeddedRedis
from starsd.process.ports import free_ports
from starsd.protocol.pods import HubPod, PodState
from starsd.settings.draft import DraftSettings
from tests.integration.fronts.client import DEADLINE_S, target, until
from tests.integration.fronts.fakes import fake_loop
from tests.unit.process.fakeloop import OFFER


def hub_settings(url: str) -> DraftSettings:
    fields: dict[str, Any] = {"id": "h", "boot": "b", "heartbeat_s": 0.05, "redis_url": url}
    port, metrics_port = free_ports(2, "127.0.0.1")
    return DraftSettings(**fields, port=port, metrics_port=metrics_port)


async def until_listed(registry: Registry, *ids: str) -> None:
    async def right() -> bool:
        return {pod.id for pod in await registry.pods()} == set(ids)

    await until(right)


async def test_a_target_learns_of_a_hub_and_of_its_end(redis_server: EmbeddedRedis) -> None:
    registry = Registry(redis_server.url, "starsd")
    stop = asyncio.Event()
    hub = asyncio.create_task(serve(hub_settings(redis_server.url), fake_loop, stop))
    async with target(redis_url=redis_server.url) as (client, _):
        await until_listed(registry, "h", "t")
        pods = {pod.id: pod for pod in await registry.pods()}
        assert pods["h"] == HubPod(
            id="h", boot="b", state=PodState.READY, offer=OFFER, free_slots=64
        )
        await client.until_metric("fake_hubs", 1)
        stop.set()
        await asyncio.wait_for(hub, DEADLINE_S)
        await until_listed(registry, "t")  # at once: the hub has withdrawn
        await client.until_metric("fake_hubs", 0)
    assert await registry.pods() == []
    await registry.close()


async def test_a_target_serves_without_redis_and_returns_to_it(
    redis_server: EmbeddedRedis,
) -> None:
    redis_server.stop()
    async with target(redis_url=redis_server.url) as (client, _):
        assert (await client.until_ready())["status"] == "degraded"
        assert (await client.generate("x", max_tokens=1)).status_code == 200
        redis_server.start()
        registry = Registry(redis_server.url, "starsd")
        await until_listed(registry, "t")

        async def whole() -> bool:
            return bool((await client.until_ready())["status"] == "ready")

        await until(whole)  # it reads the registry after it is listed there
        await registry.close()
