"""Two hubs of one offer share the work; what one of them leaves the other takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import redis

from starsd.check.lab import Service
from starsd.protocol.keys import GROUP, Keys
from tests.livestar import (
    SCRIPTED_HUB,
    LiveStar,
    eventually,
    health,
    questions,
    scripted_step,
    texts,
    value,
)

KEYS = Keys("starsd")
LONG = 400
"""Tokens of an answer that lasts until its hub has gone."""


@pytest.fixture(scope="module")
def shared_pair() -> Iterator[LiveStar]:
    """With hubs ``hub`` and ``other``."""
    with LiveStar() as star:
        star.start_all()
        with scripted_step(0.0):
            star.lab.start("other", "draft", **SCRIPTED_HUB)
        yield star


@pytest.fixture
def pair(shared_pair: LiveStar) -> LiveStar:
    """Both hubs draft before a test begins."""
    shared_pair.repair("hub")
    shared_pair.wait_whole()
    for target in shared_pair.targets:
        eventually(partial(knows_hubs, target, 2), f"{target.name} knows both hubs")
    eventually(lambda: both_answer(shared_pair), "both hubs answer")
    return shared_pair


def knows_hubs(target: Service, count: int) -> bool:
    return bool(health(target)["hubs_usable"] == count)


def answered(star: LiveStar, name: str) -> float:
    return value(star[name], "starsd:hub_jobs_total", status="ok")


def both_answer(star: LiveStar) -> bool:
    """Whoever asks for a first job first gets it, so this takes some answers."""
    texts(star.through(questions(8, first=9500, max_tokens=20)))
    return all(answered(star, name) for name in ("hub", "other"))


def pending(star: LiveStar, *dead: str) -> int:
    """Jobs that were taken and never acknowledged, of all queues but those of dead hubs: nobody
    reads these, and they expire."""
    with redis.Redis.from_url(star.redis.url, decode_responses=True) as server:
        left = [KEYS.hub_queue(hub) for hub in dead]
        assert all(server.pttl(queue) != -1 for queue in left)
        queues = [key for key in server.scan_iter("*:q:*") if server.exists(key)]
        return sum(server.xpending(key, GROUP)["pending"] for key in queues if key not in left)


def fallbacks(star: LiveStar, cause: str) -> float:
    name = "starsd:spec_decode_fallbacks_total"
    return sum(value(target, name, cause=cause) for target in star.targets)


def test_draining_a_hub_loses_nothing(pair: LiveStar) -> None:
    """Its sequences go on with the other, and every job that it took was answered."""
    asked = questions(8, max_tokens=LONG)
    hub, before = pair["hub"].process, answered(pair, "other")
    assert hub is not None

    def drain() -> None:
        hub.terminate()
        eventually(lambda: health(pair["hub"])["state"] == "draining", "it says so")

    heard = pair.through(asked, drain)
    assert hub.wait(30.0) == 0
    assert texts(heard) == texts(pair.plain(asked))
    eventually(lambda: pending(pair) == 0, "nothing is left unacknowledged")
    eventually(lambda: answered(pair, "other") > before + LONG, "the other drafts for all")
    assert fallbacks(pair, "hub_gone") <= 8 * 20, "each is without a hub for a moment only"
    for target in pair.targets:
        assert knows_hubs(target, 1)


def test_a_hub_that_is_killed_is_missed_for_a_moment(pair: LiveStar) -> None:
    asked = questions(8, max_tokens=LONG)
    before = answered(pair, "other")
    heard = pair.through(asked, pair["hub"].kill)
    assert texts(heard) == texts(pair.plain(asked))
    eventually(lambda: answered(pair, "other") > before + LONG, "the other drafts for all")
    eventually(lambda: pending(pair, "hub") == 0, "its jobs were taken over")
    again = questions(8, first=700, max_tokens=30)
    assert texts(pair.through(again)) == texts(pair.plain(again))
