from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from redis import Redis

from starsd.bus.registry import MAX_FACTS_BYTES, Registry
from starsd.bus.server import EmbeddedRedis
from starsd.errors import ConfigError, TransportError
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Limits
from starsd.protocol.pods import DrafterKind, HubPod, Offer, Pod, PodState, TargetPod

KEYS = Keys("star")
TARGET = TargetPod(
    id="t1", boot="b", state=PodState.READY, url="http://t", model="m", max_length=2048, running=1
)
OFFER = Offer(
    kind=DrafterKind.LM,
    model="m",
    revision="r",
    tokenizer="t",
    vocab_size=10,
    max_length=100,
    limits=Limits(max_depth=8),
)
HUB = HubPod(id="h1", boot="b", state=PodState.DRAINING, offer=OFFER, free_slots=3)


@pytest.fixture
async def registry(redis_server: EmbeddedRedis) -> AsyncIterator[Registry]:
    one = Registry(redis_server.url, "star")
    yield one
    await one.close()


def raw(server: EmbeddedRedis) -> Redis:
    return Redis.from_url(server.url, protocol=2)


async def until_pods(registry: Registry, expected: list[Pod]) -> None:
    for _ in range(200):
        if await registry.pods() == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never saw {expected}")


async def test_pods_publish_themselves_and_leave(registry: Registry) -> None:
    assert await registry.pods() == []
    await registry.publish(TARGET, 5)
    await registry.publish(HUB, 6)
    assert await registry.pods() == [TARGET, HUB]
    await registry.withdraw("t1")
    await registry.withdraw("never there")
    assert await registry.pods() == [HUB]


async def test_a_pod_that_falls_silent_expires(
    registry: Registry, redis_server: EmbeddedRedis
) -> None:
    await registry.publish(TARGET, 0.1)
    await registry.publish(HUB, 60)
    await until_pods(registry, [HUB])
    await registry.publish(HUB, 60)
    with raw(redis_server) as redis:
        assert redis.zrange(KEYS.pods, 0, -1) == [b"h1"]
        assert redis.keys("*t1*") == []
        assert all(int(redis.pttl(key)) > 0 for key in (KEYS.pods, KEYS.pod("h1")))


async def test_the_last_to_leave_leaves_nothing(
    registry: Registry, redis_server: EmbeddedRedis
) -> None:
    await registry.publish(TARGET, 5)
    await registry.withdraw("t1")
    with raw(redis_server) as redis:
        assert redis.dbsize() == 0


async def test_a_flushed_registry_is_whole_after_a_heartbeat(
    registry: Registry, redis_server: EmbeddedRedis
) -> None:
    await registry.publish(TARGET, 5)
    with raw(redis_server) as redis:
        redis.flushall()
    assert await registry.pods() == []
    await registry.publish(TARGET, 5)
    assert await registry.pods() == [TARGET]


async def test_what_does_not_decode_is_skipped_and_logged(
    registry: Registry, redis_server: EmbeddedRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    await registry.publish(HUB, 5)
    with raw(redis_server) as redis:
        far = 2**50
        redis.zadd(KEYS.pods, {"strange": far, "gone": far, b"\xff": far})
        redis.set(KEYS.pod("strange"), b'{"role":"cook"}')
        redis.zadd(KEYS.pods, {"deep": far, "huge": far})
        redis.set(KEYS.pod("deep"), b'{"role":"draft","x":' + b"[" * 4000)
        redis.set(KEYS.pod("huge"), msgspec.json.encode(HUB) + b" " * MAX_FACTS_BYTES)
    assert await registry.pods() == [HUB]
    logged = capsys.readouterr().out
    assert all(name in logged for name in ("strange", "deep", "huge"))


async def test_stars_with_different_namespaces_do_not_meet(
    registry: Registry, redis_server: EmbeddedRedis
) -> None:
    other = Registry(redis_server.url, "other")
    await other.publish(TARGET, 5)
    assert await registry.pods() == []
    await other.close()


async def test_without_redis_every_call_says_so_and_later_works(
    registry: Registry, redis_server: EmbeddedRedis
) -> None:
    await registry.publish(TARGET, 5)
    redis_server.stop()
    for call in (registry.pods(), registry.publish(TARGET, 5), registry.withdraw("t1")):
        with pytest.raises(TransportError, match="registry"):
            await call
    redis_server.start()
    await registry.publish(HUB, 5)
    assert await registry.pods() == [HUB]


def test_a_bad_url_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match="redis_url"):
        Registry("http://h", "star")
