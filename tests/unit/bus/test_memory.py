"""What the fake offers to tests beyond the suite it shares with Redis (tests/integration/bus)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from starsd.bus.interface import Garbage, Job, Reconnected, TargetEvent
from starsd.bus.memory import MemoryBroker, MemoryHubBus, MemoryTargetBus
from starsd.protocol.codec import encode
from tests.unit.protocol.samples import hello, proposal, propose

Trio = tuple[MemoryBroker, MemoryTargetBus, MemoryHubBus]


@pytest.fixture
def trio() -> Iterator[Trio]:
    broker = MemoryBroker()
    with ExitStack() as stack:
        target = broker.target_bus("t1", "b1")
        stack.callback(target.close)
        hub = broker.hub_bus("h1", "hb1", "offer")
        stack.callback(hub.close)
        assert target.receive() == [Reconnected()]
        assert hub.receive(0, want_first=0) == []
        yield broker, target, hub


def replied(trio: Trio, *seqs: str) -> list[TargetEvent]:
    """What the target gets of the hub's replies."""
    _, target, hub = trio
    for seq in seqs:
        hub.reply(target.reply_key, proposal(seq=seq))
    assert hub.flush() == []
    return target.receive()


def test_replies_can_be_dropped_doubled_and_corrupted(trio: Trio) -> None:
    broker = trio[0]
    broker.tamper = lambda key, data: []
    assert replied(trio, "a") == []
    broker.tamper = lambda key, data: [data, data]
    assert replied(trio, "a") == [proposal(seq="a")] * 2
    broker.tamper = lambda key, data: [data[:-1]]
    assert [type(event) for event in replied(trio, "a")] == [Garbage]


def test_replies_can_be_reordered_and_replayed(trio: Trio) -> None:
    broker, target, _ = trio
    kept: list[bytes] = []
    broker.tamper = lambda key, data: kept.append(data) or []  # type: ignore[func-returns-value]
    assert replied(trio, "a", "b") == []
    for data in (*reversed(kept), kept[0]):
        broker.inject(target.reply_key, data)
    assert target.receive() == [proposal(seq=seq) for seq in "baa"]


def test_raw_bytes_can_be_injected_both_ways(trio: Trio) -> None:
    broker, target, hub = trio
    broker.inject(target.reply_key, b"\x00")
    broker.inject(broker.keys.hub_queue("h1"), encode(hello()))
    assert isinstance(target.receive()[0], Garbage)
    (job,) = hub.receive(0, want_first=0)
    assert isinstance(job, Job)
    assert job.message == hello()


def test_a_stop_may_keep_what_is_stored(trio: Trio) -> None:
    broker, target, hub = trio
    target.send_hub("h1", propose())
    target.flush()
    broker.stop(keep=True)
    assert (target.connected, hub.connected, broker.up) == (False, False, False)
    target.send_hub("h1", propose(seq="lost"))
    target.flush()
    broker.start()
    assert target.receive() == [Reconnected()]
    (job,) = hub.receive(0, want_first=0)
    assert isinstance(job, Job)
    assert job.message == propose()


def test_a_waiting_hub_is_woken_by_another_thread(trio: Trio) -> None:
    _, target, hub = trio
    target.send_hub("h1", propose())
    thread = threading.Timer(0.02, target.flush)
    thread.start()
    assert len(hub.receive(5, want_first=0)) == 1
    thread.join()
