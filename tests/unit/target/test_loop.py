"""A target's arms: none without a Redis."""

from __future__ import annotations

from typing import Any

from services.target.loop import connect
from starsd.bus.absent import AbsentBus
from starsd.settings import TargetSettings


def test_redis_url() -> None:
    given: dict[str, Any] = {"id": "t", "boot": "b", "namespace": "space"}
    assert isinstance(connect(TargetSettings(**given)), AbsentBus)
    bus = connect(TargetSettings(**given, redis_url="redis://127.0.0.1:9"))
    assert not isinstance(bus, AbsentBus)
    assert bus.reply_key.startswith("{space}:")
    bus.close()
