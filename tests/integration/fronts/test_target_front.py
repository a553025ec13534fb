"""The target's front over real HTTP, with a loop in a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import httpx
import pytest

from services.target.serve import serve
from starsd.errors import StarsdError
from starsd.protocol.events import GENERATE_PATH, Begin, Delta, Done, Error
from starsd.protocol.frames import FinishReason
from starsd.protocol.pods import PodState
from tests.integration.fronts.client import (
    DEADLINE_S,
    Client,
    events,
    request,
    settings,
    target,
    until,
)
from tests.integration.fronts.fakes import broken_loop, fake_loop, tokenizer


async def test_an_answer_streams_from_begin_to_done() -> None:
    async with target() as (client, _):
        response = await client.generate("hé", max_tokens=6)
        begin, *deltas, done = events(response.content)
        assert isinstance(begin, Begin)
        assert begin.prompt_ids == list("hé".encode())
        assert isinstance(done, Done)
        assert (done.reason, done.usage.completion_tokens) == (FinishReason.LENGTH, 6)
        texts = [delta.text for delta in deltas if isinstance(delta, Delta)]
        assert "".join(texts) == "héhé"
        assert len(texts) == len(deltas)
        pod = await client.info()
        assert (pod.url, pod.state) == (client.api, PodState.READY)
        assert (pod.running, pod.capacity) == (0, 2)


async def test_a_stop_string_streams_as_if_computed_offline() -> None:
    async with target() as (client, _):
        async with client.stream("one END_OF_REC two", stop=("END_OF_REC",)) as stream:
            seen = [event async for event in stream]
        deltas = [event for event in seen if isinstance(event, Delta)]
        done = seen[-1]
        assert isinstance(done, Done)
        assert "".join(delta.text for delta in deltas) + done.text == "one "
        assert not any("E" in delta.text for delta in deltas)
        ids = [token for delta in deltas for token in delta.ids]
        assert bytes(ids) == b"one END_OF_REC"
        assert done.reason is FinishReason.STOP
        assert done.usage.completion_tokens == len(ids)
        await client.until_metric("fake_told_Cancel", 1)


async def test_a_client_that_leaves_cancels_its_request() -> None:
    async with target() as (client, _):
        async with client.stream("endless", max_tokens=2000) as stream:
            async for event in stream:
                if isinstance(event, Delta):
                    break
        await client.until_metric("fake_told_Cancel", 1)
        await client.until_metric("starsd:num_requests_running", 0)
        assert await client.metric('starsd:requests_total{outcome="cancelled"}') == 1
        assert (await client.info()).running == 0


async def test_a_slow_reader_is_cancelled_and_told_so() -> None:
    async with target(max_length=10_000_000) as (client, _):
        loop = asyncio.get_running_loop()
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.setblocking(False)
            await loop.sock_connect(reader, ("127.0.0.1", client.settings.port))
            body = request("flood")
            head = f"POST {GENERATE_PATH} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n"
            await loop.sock_sendall(reader, head.encode() + b"Connection: close\r\n\r\n" + body)
            await client.until_metric("fake_told_Cancel", 1)
            assert (await client.generate("others", max_tokens=1)).status_code == 200
            last = b""
            async with asyncio.timeout(DEADLINE_S):
                while data := await loop.sock_recv(reader, 1 << 20):
                    last = (last + data)[-4096:]
        begin = last.rindex(b'{"type":"error"')
        [error] = events(last[begin : last.index(b"\n", begin)])
        assert isinstance(error, Error)
        assert error.error.code == "transport_error"


async def test_a_request_has_a_deadline() -> None:
    async with target(request_timeout_s=0.2) as (client, _):
        last = events((await client.generate("endless")).content)[-1]
        assert isinstance(last, Error)
        assert last.error.code == "timeout"
        await client.until_metric("fake_told_Cancel", 1)


async def test_too_many_requests_are_told_when_to_come_again() -> None:
    async with target() as (client, _):
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(_read_some(client)) for _ in range(3)]
            await client.until_metric("fake_told_Submit", 3)
            response = await client.generate("one more")
            assert response.status_code == 429
            assert response.headers["Retry-After"] == "1"
            assert response.json()["error"]["code"] == "overloaded"
            for reader in readers:
                reader.cancel()
        await client.until_metric("starsd:num_requests_running", 0)


async def _read_some(client: Client) -> None:
    async with client.stream("endless", max_tokens=2000) as stream:
        async for _ in stream:
            pass


REFUSED = [
    (GENERATE_PATH, "POST", b"{", 400, "invalid_value"),
    (GENERATE_PATH, "POST", request("x" * 3000), 400, "context_length_exceeded"),
    (GENERATE_PATH, "POST", request("x", model="other"), 404, "model_not_found"),
    (GENERATE_PATH, "POST", b" " * (17 * 1024 * 1024), 400, "invalid_value"),
    (GENERATE_PATH, "GET", b"", 405, "method_not_allowed"),
    ("/nowhere", "GET", b"", 404, "not_found"),
]


async def test_errors_before_the_stream_have_the_one_shape() -> None:
    async with target() as (client, _):
        for path, method, body, status, code in REFUSED:
            response = await client.http.request(method, client.api + path, content=body)
            assert response.status_code == status
            assert response.json()["error"]["code"] == code
            assert (await client.generate("still", max_tokens=1)).status_code == 200


async def test_a_request_may_fail_alone() -> None:
    async with target() as (client, _):
        begin, error = events((await client.generate("fail")).content)
        assert isinstance(begin, Begin)
        assert isinstance(error, Error)
        assert error.error.message == "told to fail"
        assert await client.ready()


async def test_a_dead_loop_ends_every_request_and_the_service() -> None:
    async with target() as (client, task):
        other = asyncio.create_task(client.generate("endless"))
        await client.until_metric("fake_told_Submit", 1)
        for response in (await client.generate("die"), await other):
            last = events(response.content)[-1]
            assert isinstance(last, Error)
            assert "ended unexpectedly" in last.error.message
        with pytest.raises(StarsdError, match="ended unexpectedly"):
            await asyncio.wait_for(task, DEADLINE_S)


async def test_open_requests_finish_when_the_target_is_told_to_stop() -> None:
    chosen, stop = settings(), asyncio.Event()
    task = asyncio.create_task(serve(chosen, fake_loop, stop, tokenizer))
    client = Client(chosen)
    await client.until_ready()
    answer = asyncio.create_task(client.generate("to the end", max_tokens=100))
    await client.until_metric("fake_told_Submit", 1)
    stop.set()
    assert isinstance(events((await answer).content)[-1], Done)
    await asyncio.wait_for(task, DEADLINE_S)
    with pytest.raises(httpx.ConnectError):
        await client.generate("too late")
    await client.http.aclose()


async def test_a_loop_that_cannot_start_ends_the_service_with_its_reason() -> None:
    with pytest.raises(StarsdError, match="no such model"):
        await serve(settings(), broken_loop, asyncio.Event(), tokenizer)


async def test_a_hung_loop_is_not_ready() -> None:
    async with target() as (client, _):

        async def unready() -> bool:
            return await client.ready() is None

        pid = int(await client.metric("fake_pid"))
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(unready)
            live = await client.http.get(client.metrics + "/health/live")
            assert live.status_code == 200
            assert (await client.generate("x")).status_code == 503
        finally:
            os.kill(pid, signal.SIGCONT)
        await client.until_ready()
