"""A real gateway on a free port, in front of scripted targets, for the tests here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from services.gateway.gateway import Gateway, running_gateway
from services.gateway.pool import Pool
from starsd.errors import TransportError
from starsd.protocol.pods import Pod
from starsd.settings.gateway import GatewaySettings
from tests.fake_target import FakeTarget

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


@dataclass
class Star:
    gateway: Gateway
    client: httpx.AsyncClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def chat(self, **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json={"model": "tiny", "messages": USER, **fields})

    async def frames(self, **fields: Any) -> list[Any]:
        """The JSON of each ``data:`` frame, ``[DONE]`` as a string."""
        response = await self.chat(stream=True, **fields)
        assert response.status_code == 200, response.text
        return parse_frames(response.text)

    async def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.gateway.metrics_port}/metrics"
        return (await self.client.get(url)).text


def parse_frames(text: str) -> list[Any]:
    *frames, rest = text.split("\n\n")
    assert rest == ""
    data = [f.removeprefix("data: ") for f in frames if not f.startswith(":")]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


@contextlib.asynccontextmanager
async def star(
    targets: Sequence[FakeTarget | str] = (), registry: FakeRegistry | None = None, **fields: Any
) -> AsyncIterator[Star]:
    """The targets must be serving already; strings are URLs."""
    urls = tuple(t if isinstance(t, str) else t.url for t in targets)
    defaults = {"port": 0, "metrics_port": 0, "probe_interval_s": 0.05, "heartbeat_s": 0.05}
    settings = GatewaySettings(**{**defaults, "targets": urls, **fields})
    async with running_gateway(settings, registry, rng=random.Random(1)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        async with httpx.AsyncClient(base_url=url, timeout=20, verify=False) as client:
            yield Star(gateway, client)


class FakeRegistry:
    """Lists ``listed``; raises TransportError while ``down``."""

    def __init__(self, listed: Sequence[Pod] = ()) -> None:
        self.listed = list(listed)
        self.down = False
        self.reads = 0
        self.closed = False

    async def publish(self, pod: Pod, ttl_s: float) -> None:
        raise AssertionError("a gateway publishes nothing")

    async def withdraw(self, pod_id: str) -> None:
        raise AssertionError("a gateway withdraws nothing")

    async def pods(self) -> Sequence[Pod]:
        self.reads += 1
        if self.down:
            raise TransportError("Redis is down")
        return list(self.listed)

    async def close(self) -> None:
        self.closed = True


async def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until it holds; polling, since what is awaited happens in a server's own time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


async def live(pool: Pool, count: int) -> None:
    await eventually(lambda: len(pool.live) == count)
