"""A star that starts before its Redis and its hub exist."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from starsd.bus.server import EmbeddedRedis
from starsd.process.ports import free_ports
from tests.livestar import LiveStar, eventually, health, questions, rounds, texts


@pytest.fixture
def no_redis() -> Iterator[EmbeddedRedis]:
    """A server of a TCP port of its own, not started."""
    server = EmbeddedRedis(port=free_ports(1, "127.0.0.1")[0])
    yield server
    server.close()


def test_redis_and_hub_come_later(shared_star: LiveStar, no_redis: EmbeddedRedis) -> None:
    shared_star.repair("plain", "reference")
    asked = questions(4, first=60)
    with LiveStar(redis=no_redis) as star:
        star.start("a", "b", "gateway")
        for service in star.lab.services.values():
            service.wait_ready()
            assert health(service)["status"] == "degraded"
        for name in ("plain", "reference"):  # this test may be the first to use that star
            shared_star[name].wait_ready()
        truth = texts(shared_star.plain(asked))
        heard = star.through(asked)
        assert texts(heard) == truth
        assert not any(one.starsd["rounds"] for one in heard)
        star.start("hub")
        eventually(lambda: star["hub"].ready, "the hub waits for Redis")
        assert health(star["hub"])["status"] == "degraded"
        no_redis.start()
        star.wait_whole()
        before = rounds(star)
        assert texts(star.through(asked)) == truth
        eventually(lambda: rounds(star) > before, "proposals are verified")
