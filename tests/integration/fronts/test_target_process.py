"""A target as the supervisor sees it: exit codes, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from starsd.protocol.events import Done, Error
from starsd.settings.target import TargetSettings
from tests.integration.fronts.client import DEADLINE_S, Client, settings


def environment(chosen: TargetSettings) -> dict[str, str]:
    changed = chosen.model_dump(mode="json", exclude_unset=True)
    ours = {f"STARSD_{name.upper()}": str(value) for name, value in changed.items()}
    others = {k: v for k, v in os.environ.items() if not k.startswith("STARSD_")}
    return {**others, **ours}


@asynccontextmanager
async def process(**changes: Any) -> AsyncIterator[tuple[Client, Process]]:
    chosen = settings(**changes)
    command = [sys.executable, "-m", "tests.integration.fronts.fake_target"]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, env=environment(chosen), stderr=pipe)
    client = Client(chosen)
    try:
        await client.until_ready()
        yield client, child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.communicate()
        await client.http.aclose()


async def ended(child: Process) -> int:
    async with asyncio.timeout(DEADLINE_S):
        return await child.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_exits_with_0_and_takes_its_loop_along(number: int) -> None:
    async with process() as (client, child):
        loop = psutil.Process(int(await client.metric("fake_pid")))
        child.send_signal(number)
        assert await ended(child) == 0
        assert not loop.is_running()


@pytest.mark.parametrize(("drain_s", "last"), [(0, Error), (30, Done)])
async def test_drain_s(drain_s: int, last: type) -> None:
    async with process(drain_s=drain_s) as (client, child):
        async with client.stream("hi", max_tokens=500) as stream:
            await anext(stream)
            child.send_signal(signal.SIGTERM)
            seen = [event async for event in stream]
        assert isinstance(seen[-1], last)
        assert await ended(child) == 0


async def test_without_its_loop_it_exits_with_1_and_says_why() -> None:
    async with process() as (client, child):
        os.kill(int(await client.metric("fake_pid")), signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            _, errors = await child.communicate()
        assert child.returncode == 1
        assert b"target: the step loop ended unexpectedly" in errors


async def test_a_killed_front_takes_its_loop_along() -> None:
    async with process() as (client, child):
        loop = psutil.Process(int(await client.metric("fake_pid")))
        child.kill()
        await ended(child)
        psutil.wait_procs([loop], timeout=DEADLINE_S)
        assert not loop.is_running()
