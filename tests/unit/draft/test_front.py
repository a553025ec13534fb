"""The hub's front, and what both fronts share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from services.draft.front import BEATS, POLL_S, DraftFront
from starsd.errors import EngineError, StarsdError
from starsd.process.front import with_identity
from starsd.process.handle import FRESH_S
from starsd.protocol.frames import Drain
from starsd.protocol.pods import HubPod, PodState
from starsd.settings.draft import DraftSettings
from tests.unit.process.fakeloop import (
    OFFER,
    STARTED,
    FakeLoop,
    MemoryRegistry,
    eventually,
    snapshot,
)

GIVEN: dict[str, Any] = {"id": "hub", "boot": "b", "heartbeat_s": 0.005}
SETTINGS = DraftSettings(**GIVEN)


@asynccontextmanager
async def running(
    fake: FakeLoop, registry: MemoryRegistry | None = None
) -> AsyncIterator[tuple[DraftFront, asyncio.Task[None]]]:
    front = DraftFront(SETTINGS, fake.process, registry)
    task = asyncio.create_task(front.run())
    try:
        yield front, task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await front.stop()


def test_identity_is_drawn_where_it_is_missing() -> None:
    one, two = (with_identity(DraftSettings(**{}), "draft") for _ in range(2))
    assert one.id.startswith("draft-")
    assert one.id != two.id
    assert one.boot != two.boot
    assert with_identity(SETTINGS, "draft") == SETTINGS


async def test_publishes_the_offer_while_the_loop_moves() -> None:
    fake, registry = FakeLoop(), MemoryRegistry()
    async with running(fake, registry) as (front, _):
        fake.start()
        await eventually(lambda: registry.published)
        assert registry.published["hub"] == HubPod(
            id="hub", boot="b", state=PodState.READY, offer=OFFER, free_slots=1
        )
        front.loop._clock = lambda: front.loop._moved_at + FRESH_S
        registry.published.clear()
        calls = registry.calls
        await eventually(lambda: registry.calls > calls + 3)
        assert registry.published == {}
    assert registry.closed


async def test_withdraws_at_the_end() -> None:
    fake, registry = FakeLoop(), MemoryRegistry()
    async with running(fake, registry):
        fake.start()
        await eventually(lambda: registry.published)
    assert registry.published == {}


async def test_ready_is_started_and_fresh_and_degraded_without_redis() -> None:
    fake, registry = FakeLoop(), MemoryRegistry()
    registry.down = True
    async with running(fake, registry) as (front, _):
        state = front.readiness()
        assert (state.ready, state.live) == (False, True)
        fake.send(STARTED)
        await eventually(lambda: front.state is PodState.READY)
        assert not front.readiness().ready
        fake.send(snapshot(metrics=b"m"))
        await eventually(lambda: front.readiness().ready)
        assert front.readiness().degraded
        registry.down = False
        await eventually(lambda: not front.readiness().degraded)
        assert front.exposition() == b"m"
        front.loop._clock = lambda: front.loop._moved_at + FRESH_S
        state = front.readiness()
        assert (state.ready, state.live) == (False, True)


async def test_without_a_star_a_pod_is_whole() -> None:
    fake = FakeLoop()
    async with running(fake) as (front, _):
        fake.start()
        await eventually(lambda: front.readiness().ready)
        assert not front.readiness().degraded


async def test_a_loop_without_an_offer_is_no_hub() -> None:
    fake = FakeLoop()
    async with running(fake) as (_, task):
        fake.send(msgspec.structs.replace(STARTED, offer=None))
        with pytest.raises(EngineError, match="offer"):
            await task


async def test_the_death_of_the_loop_ends_the_run() -> None:
    fake, registry = FakeLoop(), MemoryRegistry()
    async with running(fake, registry) as (front, task):
        fake.start()
        await eventually(lambda: registry.published)
        fake.die()
        with pytest.raises(StarsdError, match="ended unexpectedly"):
            await task
        assert registry.published == {}
        state = front.readiness()
        assert (state.ready, state.live) == (False, False)


# -- draining ------------------------------------------------------------------------------------


async def test_draining_is_published_and_lasts_until_targets_had_time_to_leave() -> None:
    fake, registry = FakeLoop(), MemoryRegistry()
    async with running(fake, registry) as (front, _):
        fake.start()
        await eventually(lambda: front.state is PodState.READY)
        drain = asyncio.create_task(front.drain())
        assert isinstance(await fake.next(), Drain)
        await eventually(lambda: registry.published["hub"].state is PodState.DRAINING)
        assert not front.readiness().ready
        heard_s = BEATS * SETTINGS.heartbeat_s
        for seen in (snapshot(running=1, quiet_s=heard_s), snapshot(quiet_s=0.9 * heard_s)):
            fake.send(seen)
            await asyncio.sleep(3 * POLL_S)
            assert not drain.done()
        fake.send(snapshot(quiet_s=heard_s))
        await drain


@pytest.mark.parametrize("drain_s", [0, 1])
async def test_drain_s(drain_s: int) -> None:
    """Jobs never end: so long and no longer are they served on."""
    fake = FakeLoop()
    front = DraftFront(DraftSettings(**GIVEN, drain_s=drain_s), fake.process, None)
    task = asyncio.create_task(front.run())
    fake.start()
    await eventually(lambda: front.state is PodState.READY)
    fake.send(snapshot(running=1))
    started = time.monotonic()
    await front.drain()
    assert (time.monotonic() - started >= 1) == bool(drain_s)
    task.cancel()
    await asyncio.wait([task])
    await front.stop()


async def test_nothing_is_drained_before_the_start_and_a_dead_loop_ends_it() -> None:
    fake = FakeLoop()
    async with running(fake, MemoryRegistry()) as (front, task):
        await front.drain()
        assert front.state is PodState.STARTING
        fake.start()
        await eventually(lambda: front.state is PodState.READY)
        fake.die()
        with pytest.raises(StarsdError):
            await task
        await front.drain()
        assert fake.poll() == []
