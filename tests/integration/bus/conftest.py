from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest
from redis import Redis

from starsd.bus.interface import HubBus, TargetBus
from starsd.bus.server import EmbeddedRedis, find_server
from starsd.process.ports import free_ports
from tests.integration.bus.arms import Arms, Hub, MemoryArms, RedisArms, Target

KINDS = ("memory", "valkey-tcp", "valkey-unix", "redis-tcp", "redis-unix")


def binary(kind: str) -> str:
    """The server to run. Debian's redis-server may be missing on a desk, never in CI."""
    if kind.startswith("valkey"):
        return find_server()
    found = shutil.which("redis-server")
    if found is None and "CI" not in os.environ:
        pytest.skip("redis-server is not installed here")
    assert found is not None, "CI must have Debian's redis-server"
    return found


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis | None]:
    kind = request.param
    if kind == "memory":
        yield None
        return
    port = free_ports(1, "127.0.0.1")[0] if kind.endswith("tcp") else 0
    with EmbeddedRedis(binary=binary(kind), port=port) as running:
        yield running


@pytest.fixture
def arms(server: EmbeddedRedis | None) -> Iterator[Arms]:
    if server is None:
        yield MemoryArms()
        return
    server.start()
    with Redis.from_url(server.url, protocol=2) as redis:
        redis.flushall()
        yield RedisArms(server, redis)


B = TypeVar("B", HubBus, TargetBus)


class Ends:
    """Makes ends that are closed when the test is over."""

    def __init__(self, arms: Arms, stack: ExitStack) -> None:
        self._arms, self._stack = arms, stack

    def hub(self, name: str = "h1", boot: str = "hb1") -> Hub:
        return Hub(self._closing(self._arms.hub(name, boot)))

    def target(self, name: str = "t1", boot: str = "b1") -> Target:
        return Target(self._closing(self._arms.target(name, boot)))

    def _closing(self, bus: B) -> B:
        self._stack.callback(bus.close)
        return bus


@pytest.fixture
def ends(arms: Arms) -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(arms, stack)
