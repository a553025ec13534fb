"""A target put together: its arms, and whether it drafts at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from services.target.loop import as_the_state_allows, build, connect
from starsd.bus.absent import AbsentBus
from starsd.bus.waiting import Waiter
from starsd.engine.interface import SlotState
from starsd.process.channel import FrameDecoder, LoopChannel
from starsd.protocol.frames import Started, ToFront, ToLoop
from starsd.settings.target import TargetSettings
from tests.scripted import HashModel


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, LoopChannel[ToLoop]]]:
    front, loop = socket.socketpair()
    channel: LoopChannel[ToLoop] = LoopChannel(loop, ToLoop)
    with front:
        yield front, channel
    channel.close()


def test_redis_url() -> None:
    given: dict[str, Any] = {"id": "t", "boot": "b", "namespace": "space"}
    assert isinstance(connect(TargetSettings(**given)), AbsentBus)
    bus = connect(TargetSettings(**given, redis_url="redis://127.0.0.1:9"))
    assert not isinstance(bus, AbsentBus)
    assert bus.reply_key.startswith("{space}:")
    bus.close()


@pytest.mark.parametrize("spin_ms", [0.0, 5.0])
def test_spin_ms(ends: tuple[socket.socket, LoopChannel[ToLoop]], spin_ms: float) -> None:
    settings = TargetSettings(id="t", scripted="tests.scripted:HashModel", spin_ms=spin_ms)
    wait = build(settings, ends[1])._wait
    assert isinstance(wait, Waiter)
    assert wait.spin_s == spin_ms / 1000


@pytest.mark.parametrize(("model", "drafts"), [("HashModel", True), ("GrowingModel", False)])
def test_a_model_that_does_not_roll_back_is_served_without_drafting(
    ends: tuple[socket.socket, LoopChannel[ToLoop]], model: str, drafts: bool
) -> None:
    """And says so: in the log, in what it reports to its front, and in its metrics."""
    front, channel = ends
    with structlog.testing.capture_logs() as logs:
        loop = build(TargetSettings(id="t", scripted=f"tests.scripted:{model}"), channel)
    channel.flush()
    decoder: FrameDecoder[ToFront] = FrameDecoder(ToFront)
    (started,) = decoder.feed(front.recv(1 << 20))
    assert isinstance(started, Started)
    assert loop._settings.drafting is loop._star._settings.drafting is drafts
    assert loop._stats.value("starsd:drafting") == drafts
    assert ("no drafting: its state cannot be rolled back" in started.facts_line) is not drafts
    said = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert said == ([] if drafts else ["serving without drafting"])


@pytest.mark.parametrize(("state", "nodes"), [("ROLLS_BACK", 15), ("UNDOES", 0), ("GROWS", 0)])
def test_trees_are_asked_for_only_where_branches_can_lie_side_by_side(
    state: str, nodes: int
) -> None:
    settings = TargetSettings()
    runner = HashModel(settings).runner()
    runner.state = SlotState[state]
    allowed = as_the_state_allows(settings, runner)
    assert (allowed.drafting, allowed.draft_nodes) == (state != "GROWS", nodes)
