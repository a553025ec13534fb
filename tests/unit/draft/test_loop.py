"""What a hub offers, and that it needs a Redis to offer it on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from services.draft.loop import build, make_offer
from starsd.errors import ConfigError
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import ToLoop
from starsd.settings import DraftSettings
from tests.scripted import HashModel


@pytest.fixture
def channel() -> Iterator[LoopChannel[ToLoop]]:
    front, loop = socket.socketpair()
    channel: LoopChannel[ToLoop] = LoopChannel(loop, ToLoop)
    with front:
        yield channel
    channel.close()


def test_the_offer_follows_the_settings() -> None:
    settings = DraftSettings(model="m", draft="noisy:0.2", max_depth=5, max_length=77)
    offer = make_offer(settings, HashModel(settings).runner(), "tok")
    assert offer.model == "m/noisy:0.2"
    assert (offer.limits.max_depth, offer.limits.max_length, offer.max_length) == (5, 77, 77)


def test_redis_url(channel: LoopChannel[ToLoop]) -> None:
    given: dict[str, Any] = {"id": "h", "boot": "b", "scripted": "tests.scripted:HashModel"}
    with pytest.raises(ConfigError, match="STARSD_REDIS_URL"):
        build(DraftSettings(**given), channel)
    assert build(DraftSettings(**given, redis_url="redis://127.0.0.1:9"), channel)
