"""What the hub's settings do to sessions and slots, seen through its replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from starsd.protocol.messages import Status, ToTarget, Welcome
from tests.unit.draft.recording import Desktop, make_close, make_hello, make_job


@contextmanager
def greeted(**settings: Any) -> Iterator[Desktop]:
    """A hub with one slot and one session."""
    desk = Desktop(slots=1, **settings)
    try:
        desk.send(make_hello())
        desk.run()
        yield desk
    finally:
        desk.close()


def greet(desk: Desktop, session: str) -> ToTarget:
    desk.send(make_hello(session))
    (answer,) = desk.run()
    return answer


@pytest.mark.parametrize(("evict_idle_s", "status"), [(3.0, Status.REFUSED), (1.0, Status.OK)])
def test_evict_idle_s(evict_idle_s: float, status: Status) -> None:
    with greeted(evict_idle_s=evict_idle_s) as desk:
        desk.ask(make_job([1], seq="old"))
        desk.clock.now += 1.5
        (reply,) = desk.ask(make_job([1], seq="new"))
        assert reply.status is status


@pytest.mark.parametrize(("seq_idle_s", "used"), [(5.0, 0), (50.0, 1)])
def test_seq_idle_s(seq_idle_s: float, used: int) -> None:
    with greeted(seq_idle_s=seq_idle_s) as desk:
        desk.ask(make_job([1]))
        desk.clock.now += 4.9
        desk.hub.forget_idle()
        assert desk.hub._sessions.slots_used == 1
        desk.clock.now += 0.2
        desk.hub.forget_idle()
        assert desk.hub._sessions.slots_used == used
        (reply,) = desk.ask(make_job([2], [1], round=1))
        assert reply.status is (Status.OK if used else Status.NEED_PREFIX)


def test_retry_after_ms() -> None:
    with greeted(retry_after_ms=777) as desk:
        desk.ask(make_job([1], seq="a"))
        (reply,) = desk.ask(make_job([1], seq="b"))
        assert (reply.status, reply.retry_after_ms) == (Status.REFUSED, 777)


@pytest.mark.parametrize("limit", [1, 2])
def test_max_sessions(limit: int) -> None:
    with greeted(max_sessions=limit) as desk:
        desk.ask(make_job([1]))
        assert isinstance(greet(desk, "second:b"), Welcome) == (limit == 2)
        desk.ask(make_close())
        assert isinstance(greet(desk, "third:b"), Welcome)
