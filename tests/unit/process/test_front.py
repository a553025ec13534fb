"""What the fronts of targets and hubs do with the registry's settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.draft.front import DraftFront
from services.target.front import TargetFront
from starsd.process.front import ModelFront, with_identity
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.unit.process.fakeloop import FakeLoop, MemoryRegistry, eventually
from tests.unit.target.bytetext import ByteTokenizer

Make = Callable[..., ModelFront]


def target_front(fake: FakeLoop, registry: MemoryRegistry, **fields: Any) -> ModelFront:
    settings = with_identity(TargetSettings(**fields), "target")
    return TargetFront(settings, fake.process, registry, lambda _: ByteTokenizer())


def draft_front(fake: FakeLoop, registry: MemoryRegistry, **fields: Any) -> ModelFront:
    return DraftFront(with_identity(DraftSettings(**fields), "draft"), fake.process, registry)


@asynccontextmanager
async def running(make: Make, **fields: Any) -> AsyncIterator[MemoryRegistry]:
    fake, registry = FakeLoop(), MemoryRegistry()
    front = make(fake, registry, **fields)
    task = asyncio.create_task(front.run())
    try:
        fake.start()
        await eventually(lambda: registry.published)
        yield registry
    finally:
        task.cancel()
        await asyncio.wait([task])
        await front.stop()


both = pytest.mark.parametrize("make", [target_front, draft_front])


@both
async def test_heartbeat_s(make: Make) -> None:
    async with running(make, heartbeat_s=0.005) as registry:
        await eventually(lambda: registry.calls > 100)  # two a beat; at 1 s it would be too late


@both
async def test_pod_ttl_s(make: Make) -> None:
    async with running(make, pod_ttl_s=17.5) as registry:
        assert registry.ttl_s == 17.5


@both
async def test_id_and_boot(make: Make) -> None:
    async with running(make, id="me", boot="now") as registry:
        assert [(pod.id, pod.boot) for pod in registry.published.values()] == [("me", "now")]
    async with running(make) as registry:
        (drawn,) = registry.published.values()
    async with running(make) as registry:
        (another,) = registry.published.values()
    assert drawn.id != another.id
    assert drawn.boot != another.boot
