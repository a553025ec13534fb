"""What a hub offers, and that it needs a Redis to offer it on."""

from __future__ import annotations

import socket

import pytest

from services.draft.loop import build, make_offer
from starsd.errors import ConfigError
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import ToLoop
from starsd.settings import DraftSettings
from tests.scripted import HashModel

SETTINGS = DraftSettings(model="m", draft="noisy:0.2", max_depth=5, max_length=77)


def test_the_offer_follows_the_settings() -> None:
    offer = make_offer(SETTINGS, HashModel(SETTINGS).runner(), "tok")
    assert offer.model == "m/noisy:0.2"
    assert (offer.limits.max_depth, offer.limits.max_length, offer.max_length) == (5, 77, 77)


def test_without_redis_there_is_no_hub() -> None:
    front, loop = socket.socketpair()
    channel: LoopChannel[ToLoop] = LoopChannel(loop, ToLoop)
    with front, pytest.raises(ConfigError, match="STARSD_REDIS_URL"):
        build(SETTINGS, channel)
    channel.close()
