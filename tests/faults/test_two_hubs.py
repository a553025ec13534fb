"""Two hubs of one offer share the work; what one of them leaves the other takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import redis

from starsd.check.lab import Service
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

LONG = 400
"""Tokens of an answer that lasts until its hub has gone."""


@pytest.fixture
def pair() -> Iterator[LiveStar]:
    """Hubs ``hub`` and ``other``. Both draft before a test begins."""
    with LiveStar() as star:
        star.start_all()
        with scripted_step(0.0):
            star.lab.start("other", "draft", **SCRIPTED_HUB)
        star.wait_whole()
        for target in star.targets:
            eventually(partial(knows_hubs, target, 2), f"{target.name} knows both hubs")
        eventually(lambda: both_answer(star), "both hubs answer")
        yield star


def knows_hubs(target: Service, count: int) -> bool:
    return bool(health(target)["hubs_usable"] == count)


def answered(star: LiveStar, name: str) -> float:
    return value(star[name], "starsd:hub_jobs_total", status="ok")


def both_answer(star: LiveStar) -> bool:
    """Whoever asks for a first job first gets it, so this takes some answers."""
    texts(star.through(questions(8, first=9500, max_tokens=20)))
    return all(answered(star, name) for name in ("hub", "other"))


def pending(star: LiveStar) -> int:
    """Jobs that were taken and never acknowledged, of all queues there are."""
    with redis.Redis.from_url(star.redis.url) as server:
        queues = [key for key in server.scan_iter("*:q:*") if server.exists(key)]
        return sum(server.xpending(queue, "draft")["pending"] for queue in queues)


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
    eventually(lambda: pending(pair) == 0, "its jobs were taken over")
    again = questions(8, first=700, max_tokens=30)
    assert texts(pair.through(again)) == texts(pair.plain(again))
