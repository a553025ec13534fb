"""A client that leaves or stops reading: the target's stream is closed, nothing is left over."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.fake_target import HANG, FakeTarget, Step, begin, delta
from tests.integration.gateway.star import CHAT, USER, Star, eventually, star

WITHIN_S = 1.0


def talking() -> FakeTarget:
    return FakeTarget(script=lambda _: [begin(), delta("x"), HANG])


async def _ask(s: Star, *, stream: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request on a socket of its own, with a small read buffer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", s.gateway.port, limit=1024)
    body = json.dumps({"model": "tiny", "messages": USER, "stream": stream}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stream", [False, True])
async def test_f2_leaving_closes_the_targets_stream_within_a_second(stream: bool) -> None:
    async with talking().serving() as target, star([target], probe_interval_s=60) as s:
        reader, writer = await _ask(s, stream=stream)
        await eventually(lambda: target.open == 1)
        if stream:
            await reader.readuntil(b'"content":"x"')
        left_at = time.monotonic()
        await _leave(writer)
        async with asyncio.timeout(10):
            await target.left.wait()
        assert time.monotonic() - left_at < WITHIN_S
        await eventually(lambda: s.gateway.pool.targets[0].in_flight == 0)
        await _metric(s, 'starsd:requests_total{outcome="cancelled"} 1.0')
        await _metric(s, "starsd:num_requests_running 0.0")


async def test_leaving_before_the_first_event() -> None:
    async with (
        FakeTarget(script=lambda _: [HANG]).serving() as target,
        star([target], probe_interval_s=60) as s,
    ):
        _, writer = await _ask(s, stream=True)
        await eventually(lambda: target.open == 1)
        await _leave(writer)
        async with asyncio.timeout(10):
            await target.left.wait()


async def test_f6_a_client_that_stops_reading_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Much text and a full socket: the gateway stops reading too, and the deadline ends it."""
    monkeypatch.setattr("services.gateway.stream.SLACK_S", 0.2)
    total = 400 * 65536
    steps: list[Step] = [begin(), *[delta("x" * 65536)] * 400, HANG]
    async with (
        FakeTarget(script=lambda _: steps).serving() as target,
        star([target], probe_interval_s=60, request_timeout_s=1.0) as s,
    ):
        reader, writer = await _ask(s, stream=True)
        await reader.readexactly(1)
        async with asyncio.timeout(20):
            await target.left.wait()
        await eventually(lambda: s.gateway.pool.targets[0].in_flight == 0)
        await _metric(s, "starsd:num_requests_running 0.0")
        rest = await reader.read(-1)
        assert len(rest) < total
        assert b"[DONE]" not in rest
        await _leave(writer)


async def _metric(s: Star, line: str) -> None:
    async with asyncio.timeout(10):
        while line not in await s.metrics():  # noqa: ASYNC110 - a server's own time
            await asyncio.sleep(0.05)


async def test_many_answers_leave_nothing() -> None:
    async with FakeTarget().serving() as target, star([target], probe_interval_s=60) as s:
        await s.chat()
        before = asyncio.all_tasks()
        for start in range(0, 60, 10):
            streams = [bool(i % 2) for i in range(start, start + 10)]
            answers = await asyncio.gather(*(s.chat(stream=stream) for stream in streams))
            assert all(answer.status_code == 200 for answer in answers)
        await eventually(lambda: target.open == 0)
        await eventually(
            lambda: not {t for t in asyncio.all_tasks() - before if "pump" in t.get_name()}
        )
        assert s.gateway.pool.targets[0].in_flight == 0
        assert "starsd:num_requests_running 0.0" in await s.metrics()
        assert 'starsd:requests_total{outcome="ok"} 61.0' in await s.metrics()
