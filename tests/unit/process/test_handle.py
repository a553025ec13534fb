from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from starsd.errors import EngineError, ErrorBody, RemoteError, StarsdError, UnavailableError
from starsd.process.handle import FRESH_S, HUNG_S, LoopHandle
from starsd.protocol.frames import Cancel, Failed, Hubs, Stop, ToFront
from tests.unit.process.fakeloop import STARTED, FakeLoop, eventually, snapshot


class Watched:
    """A handle, what it told, and the time it believes."""

    def __init__(self) -> None:
        self.fake = FakeLoop()
        self.now = 0.0
        self.messages: list[ToFront] = []
        self.deaths: list[ErrorBody] = []
        self.handle = LoopHandle(
            self.fake.process, self.messages.append, self.deaths.append, lambda: self.now
        )


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    one = Watched()
    yield one
    await one.handle.stop()


async def test_starts_and_passes_frames_on(watched: Watched) -> None:
    failed = Failed(id="x", error=EngineError("boom").body())
    watched.fake.send(STARTED, failed)
    assert await watched.handle.start() == STARTED
    await eventually(lambda: watched.messages)
    assert watched.messages == [failed]
    watched.handle.send(Cancel(id="x"))
    assert await watched.fake.next() == Cancel(id="x")


async def test_nothing_can_be_sent_before_the_start(watched: Watched) -> None:
    with pytest.raises(UnavailableError):
        watched.handle.send(Hubs(hubs=[]))


async def test_fresh_only_while_snapshots_come(watched: Watched) -> None:
    handle = watched.handle
    watched.fake.send(STARTED)
    await handle.start()
    assert not handle.fresh  # nothing seen yet
    watched.fake.send(snapshot())
    await eventually(lambda: handle.snapshot)
    assert handle.fresh
    watched.now = FRESH_S
    assert (handle.fresh, handle.alive) == (False, True)
    watched.now = HUNG_S
    assert not handle.alive
    watched.fake.send(snapshot())
    await eventually(lambda: handle.fresh)
    assert handle.alive


async def test_keeps_the_latest_metrics(watched: Watched) -> None:
    watched.fake.send(STARTED, snapshot(1, b"text"), snapshot(2))
    await watched.handle.start()
    await eventually(lambda: watched.handle.snapshot and watched.handle.snapshot.running == 2)
    assert watched.handle.metrics == b"text"


async def test_a_loop_that_cannot_start_says_why(watched: Watched) -> None:
    body = EngineError("no such model").body()
    watched.fake.send(Failed(id=None, error=body))
    with pytest.raises(RemoteError, match="no such model"):
        await watched.handle.start()
    assert watched.deaths == [body]
    assert not watched.handle.alive


async def test_a_start_has_a_deadline(watched: Watched) -> None:
    with pytest.raises(EngineError, match="did not start"):
        await watched.handle.start(deadline_s=0.01)


@pytest.mark.parametrize("garbage", [b"", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1"])
async def test_death_and_garbage_are_told_once(watched: Watched, garbage: bytes) -> None:
    watched.fake.start()
    await watched.handle.start()
    if garbage:
        watched.fake.channel._sock.send(garbage)
    else:
        watched.fake.die()
    with pytest.raises(StarsdError):
        await watched.handle.dead()
    assert len(watched.deaths) == 1
    assert (watched.handle.fresh, watched.handle.alive) == (False, False)


async def test_a_handler_that_crashes_is_a_death_and_not_a_silence(watched: Watched) -> None:
    def crash(message: ToFront) -> None:
        raise KeyError(message)

    watched.handle._on_message = crash
    watched.fake.send(STARTED, Failed(id="x", error=EngineError("boom").body()))
    await watched.handle.start()
    with pytest.raises(RemoteError):
        await watched.handle.dead()


async def test_stop_asks_the_loop_and_is_no_death(watched: Watched) -> None:
    watched.fake.start()
    await watched.handle.start()
    await watched.handle.stop()
    assert watched.fake.poll() == [Stop()]
    assert watched.deaths == []
