"""Where targets and hubs listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from services.draft.serve import serve as serve_draft
from services.target.serve import serve as serve_target
from starsd.process.ports import free_ports
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.integration.fronts.client import DEADLINE_S, until
from tests.integration.fronts.fakes import fake_loop, tokenizer

ELSEWHERE = "127.0.0.2"
Serve = Callable[[asyncio.Event, dict[str, Any]], Coroutine[Any, Any, None]]


async def target(stop: asyncio.Event, given: dict[str, Any]) -> None:
    await serve_target(TargetSettings(**given), fake_loop, stop, tokenizer)


async def draft(stop: asyncio.Event, given: dict[str, Any]) -> None:
    await serve_draft(DraftSettings(**given), fake_loop, stop)


@pytest.mark.parametrize("serve", [target, draft])
async def test_host_and_ports(serve: Serve) -> None:
    stop = asyncio.Event()
    port, metrics_port = free_ports(2, ELSEWHERE)
    given = {"host": ELSEWHERE, "port": port, "metrics_port": metrics_port}
    task = asyncio.create_task(serve(stop, given))
    paths = {port: "/health/ready", metrics_port: "/metrics"}
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as client:

        async def all_answer() -> bool:
            try:
                answers = [await client.get(f"http://{ELSEWHERE}:{p}{paths[p]}") for p in paths]
            except httpx.ConnectError:
                return False
            return all(answer.status_code == 200 for answer in answers)

        await until(all_answer)
        for number, path in paths.items():
            with pytest.raises(httpx.ConnectError):
                await client.get(f"http://127.0.0.1:{number}{path}")
    stop.set()
    await asyncio.wait_for(task, DEADLINE_S)
