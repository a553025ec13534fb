"""Redis may stop, hang, come back empty or not: answers are those of plain decoding all the time,
and proposals resume when it is back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

import pytest
from redis import Redis

from starsd.bus.server import EmbeddedRedis
from starsd.check.lab import Service
from tests.livestar import (
    LiveStar,
    Question,
    eventually,
    health,
    questions,
    rounds,
    texts,
)


def send(redis: EmbeddedRedis, number: signal.Signals) -> None:
    assert redis.pid is not None
    os.kill(redis.pid, number)


def die(redis: EmbeddedRedis) -> None:
    send(redis, signal.SIGKILL)


def hang(redis: EmbeddedRedis) -> None:
    send(redis, signal.SIGSTOP)


def begin_anew(redis: EmbeddedRedis) -> None:
    """An empty server under the same URL."""
    eventually(lambda: not redis.alive, "the old server is gone")
    redis.start()


def go_on(redis: EmbeddedRedis) -> None:
    send(redis, signal.SIGCONT)


def same(star: LiveStar, asked: list[Question], fault: Callable[[], object] | None = None) -> None:
    assert texts(star.through(asked, fault)) == texts(star.plain(asked))


def degraded(service: Service) -> bool:
    return bool(health(service)["status"] == "degraded")


def serves_degraded(star: LiveStar) -> None:
    """Every model service stays up; those that serve say what is missing."""
    for service in (*star.targets, star["gateway"]):
        eventually(partial(degraded, service), f"{service.name} notices")
        assert health(service)["code"] == 200
        assert health(service, "live")["code"] == 200
    assert health(star["hub"], "live")["code"] == 200


@pytest.mark.parametrize(("harm", "mend"), [(die, begin_anew), (hang, go_on)])
def test_redis_gone_for_a_while(
    star: LiveStar,
    harm: Callable[[EmbeddedRedis], None],
    mend: Callable[[EmbeddedRedis], None],
) -> None:
    same(star, questions(4), lambda: harm(star.redis))
    serves_degraded(star)
    same(star, questions(4, first=10, max_tokens=30))
    star["gateway"].stop()
    star["gateway"].start().wait_ready()
    same(star, questions(4, first=20, max_tokens=30))
    star["b"].kill()
    star["b"].start().wait_ready()
    eventually(lambda: health(star["gateway"])["targets_live"] == 2, "the gateway has both")
    same(star, questions(4, first=30, max_tokens=30))
    serves_degraded(star)
    mend(star.redis)
    star.wait_whole()
    before = rounds(star)
    same(star, questions(4, first=40, max_tokens=30))
    eventually(lambda: rounds(star) > before, "proposals are verified again")
    assert all(health(one)["status"] == "ready" for one in star.lab.services.values())


@pytest.mark.parametrize(("harm", "mend"), [(die, begin_anew), (hang, go_on)])
def test_redis_gone_and_back_midstream(
    star: LiveStar,
    harm: Callable[[EmbeddedRedis], None],
    mend: Callable[[EmbeddedRedis], None],
) -> None:
    def blink() -> None:
        harm(star.redis)
        mend(star.redis)

    same(star, questions(4, max_tokens=200), blink)
    star.wait_whole()


def test_all_keys_deleted_midstream(star: LiveStar) -> None:
    """Connections live on, so nothing but the lost keys says that anything happened."""

    def flush() -> None:
        with Redis.from_url(star.redis.url, protocol=2) as redis:
            redis.flushall()

    same(star, questions(4, max_tokens=200), flush)
    star.wait_whole()
