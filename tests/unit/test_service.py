"""Servers, background work and signals of a service."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from starsd.errors import ConfigError
from starsd.service import Readiness, metrics_app, serving, stop_on_signal, until


async def get(port: int, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"http://127.0.0.1:{port}{path}")


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        (Readiness(True), 200, "ready"),
        (Readiness(True, degraded=True), 200, "degraded"),
        (Readiness(False, details={"why": "x"}), 503, "unavailable"),
    ],
)
async def test_health_and_metrics(state: Readiness, code: int, status: str) -> None:
    app = metrics_app(lambda: state, lambda: b"x_total 1.0\n")
    async with serving(app, "127.0.0.1", 0) as port:
        ready = await get(port, "/health/ready")
        also = await get(port, "/health")
        assert (ready.status_code, ready.json()) == (code, {"status": status, **state.details})
        assert (also.status_code, also.json()) == (code, ready.json())
        assert (await get(port, "/health/live")).json() == {"status": "live"}
        metrics = await get(port, "/metrics")
        assert metrics.text == "x_total 1.0\n"
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert (await get(port, "/nope")).json()["error"]["code"] == "not_found"


async def test_a_service_beyond_recovery_is_not_live() -> None:
    app = metrics_app(lambda: Readiness(ready=False, live=False), lambda: b"")
    async with serving(app, "127.0.0.1", 0) as port:
        assert (await get(port, "/health/live")).status_code == 503


async def test_a_taken_port_is_a_configuration_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            async with serving(_hang, "127.0.0.1", port):
                pass


async def test_the_end_leaves_no_task_and_no_listener() -> None:
    before = asyncio.all_tasks()
    async with serving(metrics_app(lambda: Readiness(True), bytes), "127.0.0.1", 0) as port:
        await get(port, "/metrics")
    assert asyncio.all_tasks() == before
    with pytest.raises(OSError, match=r"refused|Connect"):
        socket.create_connection(("127.0.0.1", port), 1)


async def _hang(_scope: Scope, _receive: Receive, _send: Send) -> None:
    await asyncio.Event().wait()


async def test_a_request_that_will_not_end_is_cancelled_and_awaited() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    async with serving(app, "127.0.0.1", 0, drain_s=0) as port:
        request = asyncio.create_task(get(port, "/"))
        await entered.wait()
    assert ended.is_set()
    await asyncio.wait({request})
    assert isinstance(request.exception(), httpx.HTTPError) or request.result().status_code == 500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_set_stop(number: signal.Signals) -> None:
    with stop_on_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(5):
            await stop.wait()


async def test_until_stop_cancels_the_work() -> None:
    stop, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await until(stop, work())
    assert ended.is_set()


async def test_until_raises_what_the_work_raises() -> None:
    async def work() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        await until(asyncio.Event(), work(), asyncio.Event().wait())
