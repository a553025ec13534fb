"""Every kind of star's arms behind one face, so that one suite runs against them all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, cast

from redis import Redis

from starsd.bus.hub import RedisHubBus
from starsd.bus.hygiene import HygieneTimes
from starsd.bus.interface import BadJob, HubBus, Job, TargetBus, TargetEvent
from starsd.bus.memory import MemoryBroker
from starsd.bus.server import EmbeddedRedis
from starsd.bus.target import RedisTargetBus
from starsd.protocol.keys import FIELD, Keys

OFFER = "0123456789abcdef"
KEYS = Keys("starsd")
WAIT_S = 10.0
MIN_IDLE_S = 0.3


class Arms(Protocol):
    """A server (or what plays it), and buses on it."""

    def target(self, name: str = "t1", boot: str = "b1") -> TargetBus: ...
    def hub(self, name: str = "h1", boot: str = "hb1") -> HubBus: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...
    def cut(self) -> None:
        """Break every connection; who is still there connects again."""

    def flush_all(self) -> None: ...
    def delete(self, key: str) -> None: ...
    def inject(self, key: str, data: bytes) -> None: ...
    def length(self, key: str) -> int: ...
    def stream_keys(self) -> set[str]: ...
    def dead(self) -> int: ...


class MemoryArms:
    def __init__(self) -> None:
        self._broker = MemoryBroker(min_idle_s=MIN_IDLE_S)

    def target(self, name: str = "t1", boot: str = "b1") -> TargetBus:
        return self._broker.target_bus(name, boot)

    def hub(self, name: str = "h1", boot: str = "hb1") -> HubBus:
        return self._broker.hub_bus(name, boot, OFFER)

    def stop(self) -> None:
        self._broker.stop()

    def start(self) -> None:
        self._broker.start()

    def cut(self) -> None:
        self._broker.start()

    def flush_all(self) -> None:
        self._broker.flush_all()

    def delete(self, key: str) -> None:
        self._broker.delete(key)

    def inject(self, key: str, data: bytes) -> None:
        self._broker.inject(key, data)

    def length(self, key: str) -> int:
        return self._broker.length(key)

    def stream_keys(self) -> set[str]:
        return set(self._broker.stream_keys())

    def dead(self) -> int:
        return len(self._broker.dead)


class RedisArms:
    def __init__(self, server: EmbeddedRedis, redis: Redis) -> None:
        self._server, self._redis = server, redis

    def target(self, name: str = "t1", boot: str = "b1") -> TargetBus:
        return RedisTargetBus(self._server.url, KEYS, name, boot, tick_s=0.05)

    def hub(self, name: str = "h1", boot: str = "hb1") -> HubBus:
        times = HygieneTimes(tick_s=0.1, min_idle_s=MIN_IDLE_S)
        return RedisHubBus(self._server.url, KEYS, name, boot, OFFER, times=times)

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def cut(self) -> None:
        self._redis.client_kill_filter(_type="normal", skipme=True)

    def flush_all(self) -> None:
        self._redis.flushall()

    def delete(self, key: str) -> None:
        self._redis.delete(key)

    def inject(self, key: str, data: bytes) -> None:
        self._redis.xadd(key, {FIELD: data})

    def length(self, key: str) -> int:
        return int(self._redis.xlen(key))

    def stream_keys(self) -> set[str]:
        return {cast(bytes, key).decode() for key in self._redis.keys("*")}

    def dead(self) -> int:
        return self.length(KEYS.dead_letters)


class Hub:
    """A hub's bus and the jobs it has brought so far."""

    def __init__(self, bus: HubBus) -> None:
        self.bus = bus
        self.jobs: list[Job] = []
        self.bad: list[BadJob] = []
        self.gone: list[str] = []

    def poll(self, want_first: int = 64) -> None:
        for job in self.bus.receive(0.0, want_first=want_first):
            self.bad += [job] if isinstance(job, BadJob) else []
            self.jobs += [job] if isinstance(job, Job) else []
        self.gone += self.bus.flush()


class Target:
    """A target's bus and the events it has brought so far."""

    def __init__(self, bus: TargetBus) -> None:
        self.bus = bus
        self.events: list[TargetEvent] = []

    def poll(self) -> None:
        self.events += self.bus.receive()
        self.bus.flush()


def until(condition: Callable[[], object], *ends: Hub | Target, want_first: int = 64) -> None:
    """Polls the ends until the condition holds; fails after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s"
        turn(*ends, want_first=want_first)
        time.sleep(0.001)


def turn(*ends: Hub | Target, want_first: int = 64) -> None:
    for end in ends:
        if isinstance(end, Hub):
            end.poll(want_first)
        else:
            end.poll()


def for_a_while(seconds: float, *ends: Hub | Target, want_first: int = 64) -> None:
    """Polls the ends for this long, to see that something does not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        turn(*ends, want_first=want_first)
        time.sleep(0.005)
