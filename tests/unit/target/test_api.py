"""A stream of events is closed however it ends. (HTTP itself: tests/integration/fronts.)"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from services.target.api import EventStream
from services.target.requests import Answer
from starsd.errors import EngineError
from starsd.metrics import RequestClock, RequestMetrics
from starsd.protocol.events import Begin, Error

BEGIN = Begin(prompt_ids=[1], seed=1, fingerprint="fp")
SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}
Message = MutableMapping[str, Any]


class Connection:
    """An ASGI server's half: a reader who may leave, or may stop reading."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.stuck = False
        self.body = b""

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        self.body += message.get("body", b"")


def answer() -> Answer:
    clock = RequestClock(RequestMetrics(CollectorRegistry()))
    one = Answer.of(1, 8, clock)
    one.events.put_nowait(BEGIN)
    return one


async def test_all_that_waits_is_sent_as_lines() -> None:
    one, connection, closed = answer(), Connection(), list[Answer]()
    one.events.put_nowait(Error(error=EngineError("x").body()))
    await EventStream(one, closed.append, 60.0)(SCOPE, connection.receive, connection.send)
    assert connection.body.count(b"\n") == 2
    assert closed == [one]


async def test_a_reader_that_leaves_closes_it() -> None:
    one, connection, closed = answer(), Connection(), list[Answer]()
    connection.left.set()
    await EventStream(one, closed.append, 60.0)(SCOPE, connection.receive, connection.send)
    assert closed == [one]


async def test_a_stuck_reader_is_given_up() -> None:
    one, connection, closed = answer(), Connection(), list[Answer]()
    connection.stuck = True
    with capture_logs() as lines:
        await EventStream(one, closed.append, 0.01)(SCOPE, connection.receive, connection.send)
    assert [line["event"] for line in lines] == ["reader stuck"]
    assert closed == [one]


async def test_a_cancelled_server_closes_it() -> None:
    one, connection, closed = answer(), Connection(), list[Answer]()
    stream = EventStream(one, closed.append, 60.0)
    task = asyncio.create_task(stream(SCOPE, connection.receive, connection.send))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [one]
