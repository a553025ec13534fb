"""What a hub offers, and that it needs a Redis to offer it on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.draft.loop import build, make_offer
from starsd.drafters.eagle import EagleDrafter
from starsd.drafters.loading import load_drafter
from starsd.engine.checkpoint import weights_revision
from starsd.errors import ConfigError
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import ToLoop
from starsd.protocol.pods import DrafterKind, Needs
from starsd.settings.draft import DraftSettings
from tests.scripted import HashModel
from tests.tiny import VOCAB
from tests.unit.engine.eagle.heads import EAGLE3, HIDDEN, TAPS, eagle3, write


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
    assert (offer.kind, offer.model, offer.needs) == (DrafterKind.LM, "m/noisy:0.2", None)
    assert (offer.limits.max_depth, offer.limits.max_length, offer.max_length) == (5, 77, 77)


def test_a_head_says_what_it_needs(tiny_model: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "head", eagle3(), EAGLE3)
    given: dict[str, Any] = {"dtype": "float32", "max_length": 64, "max_sequences": 2}
    settings = DraftSettings(model=str(tiny_model), draft=str(folder), **given)
    draft = load_drafter(settings)
    offer = make_offer(settings, draft.runner, "tok", draft.needs)
    assert isinstance(draft.drafter, EagleDrafter)
    assert offer.kind is DrafterKind.EAGLE
    assert offer.vocab_size == VOCAB
    revision = weights_revision(tiny_model)
    assert offer.needs == Needs(hidden_size=HIDDEN, layers=TAPS, revision=revision)


def test_redis_url(channel: LoopChannel[ToLoop]) -> None:
    given: dict[str, Any] = {"id": "h", "boot": "b", "scripted": "tests.scripted:HashModel"}
    with pytest.raises(ConfigError, match="STARSD_REDIS_URL"):
        build(DraftSettings(**given), channel)
    assert build(DraftSettings(**given, redis_url="redis://127.0.0.1:9"), channel)
