"""Probes: what is a good one, and that none undoes newer evidence."""

from __future__ import annotations

import asyncio
import time

import httpx
import msgspec
import pytest

from services.gateway.pool import Pool, Target
from services.gateway.probes import MAX_INFO_BYTES, PAUSE_S, Prober
from starsd.protocol.pods import PodState, TargetPod

POD = TargetPod(id="a", boot="b", state=PodState.READY, url="http://a", model="tiny", max_length=64)


def prober(pool: Pool, transport: httpx.MockTransport) -> Prober:
    client = httpx.AsyncClient(transport=transport)
    return Prober(pool, client, interval_s=1, timeout_s=0.2, lost_s=60)


async def probed(response: httpx.Response) -> Target:
    pool = Pool(["http://a"])
    await prober(pool, httpx.MockTransport(lambda _request: response)).first_round()
    return pool.targets[0]


async def test_a_good_probe_brings_the_targets_facts() -> None:
    target = await probed(httpx.Response(200, content=msgspec.json.encode(POD)))
    assert target.live
    assert target.pod == POD


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(500),
        httpx.Response(200, content=b"garbage"),
        httpx.Response(200, content=b" " * (MAX_INFO_BYTES + 1)),
        httpx.Response(200, content=b'{"role":"target","x":' + b"[" * 20_000),
        httpx.Response(302, headers={"Location": "http://elsewhere"}),
    ],
)
async def test_a_bad_probe(response: httpx.Response) -> None:
    assert not (await probed(response)).live


async def test_a_slow_probe_is_a_bad_one() -> None:
    async def slow(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    pool = Pool(["http://a"])
    pool.heard(pool.targets[0], POD)
    await prober(pool, httpx.MockTransport(slow)).first_round()
    assert not pool.targets[0].live


async def test_probes_of_many_targets_are_spread() -> None:
    """At once, they would take the event loop from the answers under way."""
    times: list[float] = []
    all_asked = asyncio.Event()

    def answer(_request: httpx.Request) -> httpx.Response:
        times.append(time.monotonic())
        if len(times) == 60:
            all_asked.set()
        return httpx.Response(500)

    pool = Pool([f"http://a{number}" for number in range(60)])
    running = asyncio.create_task(prober(pool, httpx.MockTransport(answer)).run())
    try:
        async with asyncio.timeout(30):
            await all_asked.wait()
    finally:
        running.cancel()
        await asyncio.wait({running})
    assert times[59] - times[0] > 50 * PAUSE_S


async def test_a_probe_begun_before_a_failure_does_not_undo_it() -> None:
    pool = Pool(["http://a"])
    target = pool.targets[0]

    def answer(_request: httpx.Request) -> httpx.Response:
        pool.failed(target, "a request broke meanwhile")
        return httpx.Response(200, content=msgspec.json.encode(POD))

    await prober(pool, httpx.MockTransport(answer)).first_round()
    assert not target.live
