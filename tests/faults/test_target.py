"""A target that dies takes no other's answers with it, and leaves nothing at the hub."""

from __future__ import annotations

import signal

import openai
import redis

from starsd.protocol.keys import Keys
from tests.livestar import LiveStar, eventually, health, questions, signal_pod, texts, value

KEYS = Keys("starsd")


def reply_streams(star: LiveStar, target: str) -> list[bytes]:
    """Q_out of every incarnation of a target."""
    with redis.Redis.from_url(star.redis.url) as client:
        return list(client.scan_iter(match=KEYS.reply_stream(target, "*")))


def live_ms(star: LiveStar, key: bytes) -> int:
    with redis.Redis.from_url(star.redis.url) as client:
        return int(client.pttl(key))


def test_target_killed_midstream(star: LiveStar) -> None:
    asked = questions(6)
    truth = star.plain(asked)
    streams = set(reply_streams(star, "a"))
    heard = star.through(asked, star["a"].kill)
    broken = [pair for pair in zip(heard, truth, strict=True) if pair[0].error is not None]
    whole = [pair for pair in zip(heard, truth, strict=True) if pair[0].error is None]
    assert broken
    assert whole
    for got, want in broken:
        assert type(got.error) is openai.APIError
        assert "target a failed" in got.error.message
        assert got.reason is None
        assert want.text.startswith(got.text)
    assert texts([got for got, _ in whole]) == texts([want for _, want in whole])
    assert {got.starsd["target"] for got, _ in whole} == {"b"}

    later = star.through(questions(6, first=10, max_tokens=30))
    assert texts(later) == texts(star.plain(questions(6, first=10, max_tokens=30)))
    assert {one.starsd["target"] for one in later} == {"b"}
    assert health(star["gateway"])["status"] == "degraded"

    eventually(lambda: value(star["hub"], "starsd:hub_slots_used") == 0, "its sequences go")
    for key in streams:
        assert live_ms(star, key) != -1, "nobody renews it: it expires"


def test_nobody_asking_after_a_kill_sees_it(star: LiveStar) -> None:
    asked = questions(6, first=20, max_tokens=30)
    truth = texts(star.plain(asked))
    star["a"].kill()
    heard = star.through(asked)
    assert texts(heard) == truth
    assert {one.starsd["target"] for one in heard} == {"b"}


def test_unbegun_requests_of_a_hung_target_move(star: LiveStar) -> None:
    """Connections to it still open, and nothing ever comes; probes tell."""
    asked = questions(6, first=30, max_tokens=30)
    truth = texts(star.plain(asked))
    moved = value(star["gateway"], "starsd:requests_moved_total")
    signal_pod(star["a"], signal.SIGSTOP)
    heard = star.through(asked)
    assert texts(heard) == truth
    assert {one.starsd["target"] for one in heard} == {"b"}
    assert value(star["gateway"], "starsd:requests_moved_total") > moved
    signal_pod(star["a"], signal.SIGCONT)
    star.wait_whole()
