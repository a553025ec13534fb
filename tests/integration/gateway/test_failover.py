"""Targets that fail: before the first event another one answers; probes say who is alive."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from starsd.errors import OverloadedError, UnavailableError
from starsd.protocol.frames import FinishReason
from starsd.protocol.pods import PodState
from tests.fake_target import BREAK, HANG, FakeTarget, Step, begin, delta, done
from tests.integration.gateway.star import eventually, live, star

BROKEN: list[list[Step]] = [[BREAK], [], [b"garbage\n"], [delta("before begin")]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("steps", BROKEN)
async def test_nothing_delivered_moves_to_another_target(steps: list[Step], stream: bool) -> None:
    bad = FakeTarget(name="bad", script=lambda _: steps)
    async with bad.serving(), FakeTarget(name="good", running=4).serving() as good:
        # Probes come seldom here: the bad one is down after its first failure.
        async with star([bad, good], probe_interval_s=60) as s:
            for _ in range(3):
                response = await s.chat(stream=stream)
                assert response.status_code == 200
                assert "Hello" in response.text
                assert "error" not in response.text
            assert "starsd:requests_moved_total 1.0" in await s.metrics()
        assert len(bad.seen) == 1
        assert bad.seen[0] == good.seen[0]


@pytest.mark.parametrize("error", [OverloadedError, UnavailableError])
async def test_no_room_moves_to_another_target(
    error: type[OverloadedError | UnavailableError],
) -> None:
    full = FakeTarget(name="full", refusal=error("full").body())
    async with full.serving(), FakeTarget(name="good", running=40).serving() as good:
        async with star([full, good], probe_interval_s=60) as s:
            for _ in range(2):
                assert (await s.chat()).json()["starsd"]["target"] == "good"
        assert len(full.seen) == 2, "a full target is not a dead one"


async def test_a_target_that_is_gone_moves_the_request() -> None:
    async with contextlib.AsyncExitStack() as stack:
        gone = FakeTarget(name="gone")
        stop = await stack.enter_async_context(contextlib.AsyncExitStack())
        await stop.enter_async_context(gone.serving())
        good = await stack.enter_async_context(FakeTarget(name="good", running=4).serving())
        s = await stack.enter_async_context(star([gone, good], probe_interval_s=60))
        await stop.aclose()
        assert (await s.chat()).json()["starsd"]["target"] == "good"


@pytest.mark.parametrize("stream", [False, True])
async def test_two_attempts_and_no_more(stream: bool) -> None:
    async with contextlib.AsyncExitStack() as stack:
        bad = [FakeTarget(name=f"t{i}", script=lambda _: [BREAK]) for i in range(3)]
        for target in bad:
            await stack.enter_async_context(target.serving())
        s = await stack.enter_async_context(star(bad, probe_interval_s=60))
        response = await s.chat(stream=stream)
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert "try again" in response.json()["error"]["message"]
    assert sum(len(target.seen) for target in bad) == 2


async def test_something_delivered_is_never_tried_again() -> None:
    bad = FakeTarget(name="bad", script=lambda _: [begin(), delta("x"), BREAK])
    async with bad.serving(), FakeTarget(name="good", running=4).serving() as good:
        async with star([bad, good], probe_interval_s=60) as s:
            frames = await s.frames()
        assert "bad" in frames[-1]["error"]["message"]
        assert good.seen == []


async def test_a_known_model_without_live_target_is_503() -> None:
    async with star(["http://127.0.0.1:9"]) as s:
        response = await s.chat()
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert response.json()["error"]["code"] == "unavailable"


async def test_a_target_that_comes_back_is_used_again() -> None:
    async with contextlib.AsyncExitStack() as stack:
        target = FakeTarget()
        first = await stack.enter_async_context(contextlib.AsyncExitStack())
        await first.enter_async_context(target.serving())
        port = int(target.url.rpartition(":")[2])
        s = await stack.enter_async_context(star([target]))
        assert (await s.chat()).status_code == 200
        await first.aclose()
        await live(s.gateway.pool, 0)
        assert (await s.chat()).status_code == 503
        await stack.enter_async_context(target.serving(port))
        await live(s.gateway.pool, 1)
        assert (await s.chat()).status_code == 200


async def test_a_draining_target_gets_nothing_new() -> None:
    async with FakeTarget(state=PodState.DRAINING).serving() as target, star([target]) as s:
        assert (await s.chat()).status_code == 503
        target.state = PodState.READY
        await live(s.gateway.pool, 1)
        assert (await s.chat()).status_code == 200


async def test_a_hung_target_neither_stalls_others_nor_keeps_requests() -> None:
    """It accepts connections and answers nothing, like a stopped process."""
    hung = FakeTarget(name="hung", script=lambda _: [HANG])
    async with (
        hung.serving(),
        FakeTarget(name="good", running=4).serving() as good,
        star([hung, good], connect_timeout_s=0.2, target_lost_s=0.3) as s,
    ):
        hung.mute = True
        answer = (await s.chat()).json()
        assert answer["starsd"]["target"] == "good"
        assert [len(target.seen) for target in (hung, good)] == [1, 1]
        assert {target.name for target in s.gateway.pool.live} == {"good"}
        assert 'upstream_failures_total{cause="lost"} 1.0' in await s.metrics()


async def test_a_target_that_delivers_is_not_lost_however_late_its_probes() -> None:
    """A crowded front answers no probe in time; cutting its answers off would make that worse."""
    steps: list[Step] = [begin(), *[step for _ in range(12) for step in (0.15, delta("x"))], done()]
    target = FakeTarget(script=lambda _: steps)
    async with target.serving(), star([target], connect_timeout_s=0.1, target_lost_s=1.0) as s:
        target.mute = True
        answer = await s.chat()
        assert answer.json()["choices"][0]["message"]["content"] == "x" * 12


async def test_reported_load_steers() -> None:
    async with (
        FakeTarget(name="busy", running=4).serving() as busy,
        FakeTarget(name="idle").serving() as idle,
        star([busy, idle]) as s,
    ):
        for _ in range(4):
            await s.chat()
        assert (len(busy.seen), len(idle.seen)) == (0, 4)
        busy.running, idle.running = 0, 4
        loads = {"busy": 0.0, "idle": 1.0}
        await eventually(lambda: {t.name: t.load for t in s.gateway.pool.targets} == loads)
        await s.chat()
        assert (len(busy.seen), len(idle.seen)) == (1, 4)


async def test_own_requests_steer_before_the_targets_report_them() -> None:
    """Concurrent requests between two probes spread over both targets."""
    steps: list[Step] = [begin(), 0.2, delta("x"), done(FinishReason.STOP)]
    async with (
        FakeTarget(name="a", script=lambda _: steps).serving() as a,
        FakeTarget(name="b", script=lambda _: steps).serving() as b,
        star([a, b], probe_interval_s=60) as s,
    ):
        answers = await asyncio.gather(*(s.chat() for _ in range(8)))
        assert all(answer.status_code == 200 for answer in answers)
        assert abs(len(a.seen) - len(b.seen)) <= 2
        assert all(target.in_flight == 0 for target in s.gateway.pool.targets)
