"""What the hub's settings do to sessions and slots, seen through its replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from starsd.drafters.lm import LmDrafter
from starsd.protocol.messages import Propose, Status, ToTarget, Welcome
from starsd.settings.draft import DraftSettings
from tests.scripted import HashModel
from tests.unit.draft.recording import Desktop, make_close, make_hello, make_job


@contextmanager
def greeted(slots: int = 1, kv_blocks: int = 100, **settings: Any) -> Iterator[Desktop]:
    """A hub with one session and, unless told otherwise, one slot."""
    desk = Desktop(slots, kv_blocks, 256, **settings)
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


# -- memory --------------------------------------------------------------------------------------

LONG = [1] * 70


def status(desk: Desktop, job: Propose) -> Status:
    (reply,) = desk.ask(job)
    return reply.status


@pytest.mark.parametrize(("kv_memory", "answered"), [("256KiB", 2), ("512KiB", 4)])
def test_kv_memory(kv_memory: str, answered: int) -> None:
    """Slots for everyone, and memory for sequences of two blocks each."""
    given: dict[str, Any] = {"max_sequences": 8, "max_length": 256, "kv_memory": kv_memory}
    drafter = LmDrafter(HashModel(DraftSettings(**given)).runner(), DraftSettings(**given))
    with greeted(slots=8, kv_blocks=drafter.kv_blocks) as desk:
        replies = desk.ask(*[make_job(LONG, seq=f"s{index}") for index in range(8)])
        assert sum(reply.status is Status.OK for reply in replies) == answered


def test_without_memory_newcomers_are_refused_and_leave_nothing() -> None:
    with greeted(slots=4, kv_blocks=3) as desk:
        assert status(desk, make_job(LONG, seq="a")) is Status.OK
        (reply,) = desk.ask(make_job(LONG, seq="b"))
        assert (reply.status, reply.retry_after_ms) == (Status.REFUSED, 200)
        assert (desk.hub._sessions.slots_used, desk.hub._sessions.budget.used) == (1, 2)
        assert status(desk, make_job([1], seq="c")) is Status.OK
        desk.run()
        assert desk.bus.wanted_first[-1] == 0  # first jobs are left to other hubs


def test_idle_sequences_make_room_in_memory() -> None:
    with greeted(slots=4, kv_blocks=4) as desk:
        desk.ask(make_job(LONG, seq="a"), make_job(LONG, seq="b"))
        desk.clock.now += 2.5
        desk.ask(make_job([2], LONG, seq="b", round=1))
        assert status(desk, make_job(LONG, seq="c")) is Status.OK
        assert desk.drafter.released == [0]
        assert status(desk, make_job([2], LONG, seq="a", round=1)) is Status.NEED_PREFIX


def test_one_that_cannot_grow_is_given_up_and_comes_back_with_all_of_it() -> None:
    with greeted(slots=4, kv_blocks=3) as desk:
        desk.ask(make_job([1] * 50, seq="a"), make_job(LONG, seq="b"))
        (reply,) = desk.ask(make_job([2] * 20, [1] * 50, seq="a", round=1))
        assert (reply.status, reply.have.length) == (Status.REFUSED, 0)
        assert reply.retry_after_ms > 0
        assert desk.drafter.released == [0]
        desk.ask(make_close(seq="b"))
        again = make_job([1] * 50 + [2] * 20, seq="a", epoch=1)
        assert status(desk, again) is Status.OK
        assert desk.hub._sessions.budget.used == 2


def test_whatever_ends_a_sequence_gives_its_memory_back() -> None:
    with greeted(slots=4, kv_blocks=8) as desk:
        for seq in "abc":
            desk.ask(make_job(LONG, seq=seq))
        desk.ask(make_close(seq="a"))
        desk.bus.gone = ["out:t:b"]
        desk.run()
        assert desk.hub._sessions.budget.used == 0
        assert sorted(desk.drafter.released) == [0, 1, 2]
