"""What the gateway's settings do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from services.gateway.pool import Pool
from starsd.process.ports import free_ports
from starsd.protocol.pods import PodState, TargetPod
from tests.fake_target import HANG, FakeTarget
from tests.integration.gateway.star import FakeRegistry, eventually, star

ELSEWHERE = "127.0.0.2"


@dataclass
class Counted(FakeTarget):
    """Counts how often it was asked how it is."""

    probes: int = 0

    @property
    def pod(self) -> TargetPod:
        self.probes += 1
        return super().pod


async def test_host_and_ports() -> None:
    port, metrics_port = free_ports(2, ELSEWHERE)
    async with star(host=ELSEWHERE, port=port, metrics_port=metrics_port) as s:
        for number, path in ((port, "/v1/models"), (metrics_port, "/metrics")):
            assert (await s.client.get(f"http://{ELSEWHERE}:{number}{path}")).status_code == 200
            with pytest.raises(httpx.ConnectError):
                await s.client.get(f"http://127.0.0.1:{number}{path}")


async def test_heartbeat_s() -> None:
    registry = FakeRegistry()
    async with star(registry=registry, heartbeat_s=0.005):
        await eventually(lambda: registry.reads > 50)  # the default would be too late


async def test_probe_interval_s() -> None:
    target = Counted()
    async with target.serving(), star([target], probe_interval_s=0.005):
        await eventually(lambda: target.probes > 50)  # the default would be too late


async def test_connect_timeout_s_of_a_probe() -> None:
    async with FakeTarget(mute=True).serving() as target:
        with capture_logs() as lines:
            async with star([target], connect_timeout_s=0.125) as s:
                s.gateway.pool.targets[0].live = True
                await eventually(lambda: not s.gateway.pool.live)
    reasons = {line.get("reason") for line in lines if line["event"] == "target down"}
    assert reasons == {"no answer within 0.125 s"}


@contextlib.contextmanager
def full_backlog() -> Iterator[str]:
    """A URL where connecting never ends: one connection waits to be taken, others get no place."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_connect_timeout_s_of_a_request() -> None:
    pod = TargetPod(id="t", boot="b", state=PodState.READY, url="u", model="tiny", max_length=64)
    limits: dict[str, Any] = {"connect_timeout_s": 0.1, "request_timeout_s": 1.9}
    with full_backlog() as url:
        async with star([url], probe_interval_s=60, **limits) as s:
            s.gateway.pool.heard(s.gateway.pool.targets[0], pod)
            response = await s.chat()
            assert response.status_code == 503  # 504 if the request's own deadline came first
            assert 'upstream_failures_total{cause="unreachable"} 1.0' in await s.metrics()


@pytest.mark.parametrize("moves", [True, False])
async def test_target_lost_s(moves: bool) -> None:
    """A target that hangs keeps its request for so long."""
    hung, good = FakeTarget("hung", script=lambda _: [HANG]), FakeTarget("good", running=4)
    lost_s = 0.2 if moves else 300
    async with (
        hung.serving(),
        good.serving(),
        star([hung, good], connect_timeout_s=0.5, target_lost_s=lost_s) as s,
    ):
        target = s.gateway.pool.targets[0]
        asked = asyncio.create_task(s.chat())
        await eventually(lambda: hung.open == 1)
        hung.mute = True
        if moves:
            answer = await asyncio.wait_for(asked, 8)  # sooner than the default
            assert answer.json()["starsd"]["target"] == "good"
        else:
            await eventually(lambda: target.failures > 1)
            assert (target.in_flight, good.seen) == (1, [])
            asked.cancel()
            await asyncio.wait([asked])


async def test_prefix_margin() -> None:
    """The one that answered the beginning is three requests of four slots busier than the other."""
    chat = [{"role": "user", "content": "star " * 100}]
    for margin, home in ((0.5, "b"), (1.0, "a")):
        async with contextlib.AsyncExitStack() as stack:
            a, b = FakeTarget(name="a"), FakeTarget(name="b", running=4)
            for target in (a, b):
                await stack.enter_async_context(target.serving())
            s = await stack.enter_async_context(star([a, b], prefix_margin=margin))
            assert (await s.chat(messages=chat)).json()["starsd"]["target"] == "a"
            a.running, b.running = 3, 0
            await eventually(partial(_loads_are, s.gateway.pool, 0.75, 0.0))
            more = [*chat, {"role": "assistant", "content": "hm"}]
            assert (await s.chat(messages=more)).json()["starsd"]["target"] == home


def _loads_are(pool: Pool, *loads: float) -> bool:
    return [target.load for target in pool.targets] == list(loads)
