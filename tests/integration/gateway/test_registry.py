"""Targets by registry; without it the gateway keeps what it knows."""

from __future__ import annotations

from tests.fake_target import FakeTarget
from tests.integration.gateway.star import FakeRegistry, eventually, live, star


async def test_registered_targets_are_found_at_start() -> None:
    async with FakeTarget().serving() as target:
        registry = FakeRegistry([target.pod])
        async with star(registry=registry) as s:
            assert (await s.chat()).status_code == 200
        assert registry.closed


async def test_newcomers_are_found_at_a_heartbeat() -> None:
    registry = FakeRegistry()
    async with FakeTarget().serving() as target, star(registry=registry) as s:
        assert (await s.chat()).status_code == 503
        registry.listed.append(target.pod)
        await live(s.gateway.pool, 1)
        assert (await s.chat()).status_code == 200


async def test_a_registry_that_fails_forgets_nothing() -> None:
    async with FakeTarget().serving() as target:
        registry = FakeRegistry([target.pod])
        async with star(registry=registry) as s:
            registry.down = True
            reads = registry.reads
            await eventually(lambda: registry.reads > reads + 2)
            assert (await s.chat()).status_code == 200
            ready = await s.client.get("/health/ready")
            assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
            assert ready.json()["registry"] == "lost"
            registry.down = False
            await eventually(lambda: registry.reads > reads + 5)
            assert (await s.client.get("/health/ready")).json()["status"] == "ready"


async def test_an_emptied_registry_loses_no_answering_target() -> None:
    async with FakeTarget().serving() as target:
        registry = FakeRegistry([target.pod])
        async with star(registry=registry) as s:
            registry.listed.clear()
            reads = registry.reads
            await eventually(lambda: registry.reads > reads + 2)
            assert (await s.chat()).status_code == 200


async def test_starting_while_the_registry_is_down() -> None:
    registry = FakeRegistry()
    registry.down = True
    async with FakeTarget().serving() as target, star([target], registry) as s:
        assert (await s.chat()).status_code == 200
