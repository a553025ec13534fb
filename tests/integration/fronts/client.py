"""A real target's front with a real process for its loop, and clients of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import msgspec

from services.target.serve import serve
from starsd.errors import StarsdError
from starsd.process.ports import free_ports
from starsd.protocol.events import GENERATE_PATH, INFO_PATH, Event, Generate
from starsd.protocol.pods import TargetPod
from starsd.protocol.sampling import SamplingParams
from starsd.settings.target import TargetSettings
from tests.integration.fronts.fakes import fake_loop, tokenizer

DEADLINE_S = 30.0

T = TypeVar("T")


def request(content: str, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "id": "r",
        "model": "m",
        "messages": [{"role": "user", "content": content}],
        "sampling": SamplingParams(seed=7),
    }
    return msgspec.json.encode(Generate(**{**fields, **changes}))


def events(body: bytes) -> list[Event]:
    return [msgspec.json.decode(line, type=Event) for line in body.splitlines()]


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """The first truth that ``look`` sees; fails after a long while."""
    async with asyncio.timeout(DEADLINE_S):
        while not (seen := await look()):  # noqa: ASYNC110 - what it looks at is a process
            await asyncio.sleep(0.02)
    return seen


class Client:
    """Of one front: its API and its metrics port."""

    def __init__(self, settings: TargetSettings) -> None:
        self.settings = settings
        self.http = httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S)
        self.api = f"http://127.0.0.1:{settings.port}"
        self.metrics = f"http://127.0.0.1:{settings.metrics_port}"

    async def generate(self, content: str, **changes: Any) -> httpx.Response:
        return await self.http.post(self.api + GENERATE_PATH, content=request(content, **changes))

    @asynccontextmanager
    async def stream(self, content: str, **changes: Any) -> AsyncIterator[AsyncIterator[Event]]:
        body = request(content, **changes)
        async with self.http.stream("POST", self.api + GENERATE_PATH, content=body) as response:
            assert response.status_code == 200
            yield (msgspec.json.decode(line, type=Event) async for line in response.aiter_lines())

    async def info(self) -> TargetPod:
        response = await self.http.get(self.api + INFO_PATH)
        return msgspec.json.decode(response.content, type=TargetPod)

    async def ready(self) -> dict[str, Any] | None:
        """The body of /health/ready, or None."""
        try:
            response = await self.http.get(self.metrics + "/health/ready")
        except httpx.TransportError:
            return None
        body: dict[str, Any] = response.json()
        return body if response.status_code == 200 else None

    async def metric(self, name: str) -> float:
        text = (await self.http.get(self.metrics + "/metrics")).text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def until_metric(self, name: str, value: float) -> None:
        async def right() -> bool:
            return await self.metric(name) == value

        await until(right)

    async def until_ready(self) -> dict[str, Any]:
        body = await until(self.ready)
        assert body is not None
        return body


def settings(**changes: Any) -> TargetSettings:
    port, metrics_port = free_ports(2, "127.0.0.1")
    fields: dict[str, Any] = {
        "id": "t",
        "boot": "b",
        "model": "m",
        "port": port,
        "metrics_port": metrics_port,
        "max_sequences": 2,
        "max_waiting": 1,
        "heartbeat_s": 0.05,
    }
    return TargetSettings(**{**fields, **changes})


@asynccontextmanager
async def target(**changes: Any) -> AsyncIterator[tuple[Client, asyncio.Task[None]]]:
    """A front that is ready. Its own error, if any, is for the test to look at in the task."""
    chosen = settings(**changes)
    stop = asyncio.Event()
    task = asyncio.create_task(serve(chosen, fake_loop, stop, tokenizer))
    client = Client(chosen)
    try:
        await client.until_ready()
        yield client, task
    finally:
        await client.http.aclose()
        stop.set()
        await asyncio.wait([task], timeout=DEADLINE_S)
        if not isinstance(task.exception(), StarsdError | None):
            task.result()
