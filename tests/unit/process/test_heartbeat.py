from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from starsd.process.heartbeat import Heartbeat
from starsd.protocol.pods import Pod
from tests.unit.process.fakeloop import HUB, MemoryRegistry, eventually


class Beating:
    def __init__(self) -> None:
        self.registry = MemoryRegistry()
        self.pod: Pod | None = HUB
        self.seen: list[Sequence[Pod]] = []
        self.heart = Heartbeat(self.registry, 0.001, 5.0, lambda: self.pod, self.seen.append)


@pytest.fixture
def beating() -> Beating:
    return Beating()


async def test_publishes_and_reads(beating: Beating) -> None:
    await beating.heart.beat()
    assert beating.registry.published == {"hub": HUB}
    assert beating.registry.ttl_s == 5.0
    assert beating.seen == [[HUB]]
    assert beating.heart.connected


async def test_with_nothing_to_vouch_for_it_only_reads(beating: Beating) -> None:
    beating.pod = None
    await beating.heart.beat()
    assert beating.registry.published == {}
    assert beating.seen == [[]]


async def test_an_outage_is_logged_once_and_ends(beating: Beating) -> None:
    with capture_logs() as lines:
        for down in (False, True, True, True, False, False):
            beating.registry.down = down
            await beating.heart.beat()
    assert [line["event"] for line in lines] == [
        "registry reached",
        "registry lost",
        "registry reached",
    ]
    assert len(beating.seen) == 3


async def test_a_defect_does_not_end_the_beating(beating: Beating) -> None:
    def crash() -> Pod | None:
        raise ValueError

    beating.heart._pod = crash
    with capture_logs() as lines:
        await beating.heart.beat()
    assert lines[0]["event"] == "heartbeat failed"


@pytest.mark.parametrize("down", [False, True])
async def test_leaves_the_registry_at_its_end(beating: Beating, down: bool) -> None:
    task = asyncio.create_task(beating.heart.run())
    await eventually(lambda: len(beating.seen) > 2)
    beating.registry.down = down
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert beating.registry.closed
    assert beating.registry.published == ({"hub": HUB} if down else {})


class SlowRegistry(MemoryRegistry):
    """What it was told to publish arrives even if the caller has gone meanwhile."""

    async def publish(self, pod: Pod, ttl_s: float) -> None:
        self.calls += 1
        loop = asyncio.get_running_loop()
        loop.call_later(0.02, lambda: self.published.update({pod.id: pod}))
        await asyncio.sleep(0.03)


async def test_a_beat_begun_ends_before_it_leaves() -> None:
    registry = SlowRegistry()
    heart = Heartbeat(registry, 10.0, 5.0, lambda: HUB, lambda pods: None)
    task = asyncio.create_task(heart.run())
    await eventually(lambda: registry.calls > 0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0.05)
    assert registry.published == {}
