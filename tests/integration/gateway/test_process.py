"""``python -m services.gateway`` as a process: no torch, no Redis needed, ends on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fake_target import FakeTarget, begin, delta, done
from tests.integration.gateway.star import CHAT, USER

START_S = 60.0


@contextlib.asynccontextmanager
async def gateway(**settings: str) -> AsyncIterator[tuple[Process, str]]:
    """The process, and the URL that it logs."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("STARSD_")}
    fields = {"port": "0", "metrics_port": "0", "log_json": "true", **settings}
    env |= {f"STARSD_{name.upper()}": value for name, value in fields.items()}
    command = (sys.executable, "-m", "services.gateway")
    process = await asyncio.create_subprocess_exec(*command, env=env, stderr=PIPE)
    try:
        yield process, await _url(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _url(process: Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(START_S):
        async for line in process.stderr:
            if match := re.search(rb'"what": "OpenAI API", "url": "([^"]+)"', line):
                return match[1].decode()
            if process.returncode is not None:
                break
    raise AssertionError("it did not start")


async def test_serves_and_starts_without_redis_and_ends_on_sigterm() -> None:
    async with (
        FakeTarget().serving() as target,
        gateway(targets=json.dumps([target.url]), redis_url="redis://127.0.0.1:9") as (
            process,
            url,
        ),
        httpx.AsyncClient(base_url=url, verify=False) as client,
    ):
        response = await client.post(CHAT, json={"model": "tiny", "messages": USER})
        assert response.json()["choices"][0]["message"]["content"] == "Hello world"
        ready = (await client.get("/health/ready")).json()
        assert (ready["status"], ready["registry"]) == ("degraded", "lost")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.mark.parametrize(("drain_s", "whole"), [("0", False), ("30", True)])
async def test_drain_s(drain_s: str, whole: bool) -> None:
    slow = FakeTarget(script=lambda _: [begin(), delta("a"), 0.5, done()])
    async with (
        slow.serving() as target,
        gateway(targets=json.dumps([target.url]), drain_s=drain_s) as (process, url),
        httpx.AsyncClient(base_url=url, verify=False) as client,
    ):
        asked = {"model": "tiny", "messages": USER, "stream": True}
        text = ""
        with contextlib.suppress(httpx.RemoteProtocolError):
            async with client.stream("POST", CHAT, json=asked) as response:
                async for line in response.aiter_lines():
                    if not text:
                        process.send_signal(signal.SIGTERM)
                    text += line
        assert text.endswith("[DONE]") is whole
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_a_bad_setting_ends_it_with_one_line() -> None:
    env = {**os.environ, "STARSD_TARGETS": '["ftp://x"]', "STARSD_PORT": "0"}
    command = (sys.executable, "-m", "services.gateway")
    process = await asyncio.create_subprocess_exec(*command, env=env, stderr=PIPE)
    _, text = await asyncio.wait_for(process.communicate(), START_S)
    assert process.returncode == 1
    assert text.decode().splitlines() == [
        "gateway: STARSD_TARGETS: 'ftp://x' is no http:// or https:// URL"
    ]


async def test_it_imports_no_torch() -> None:
    code = "import sys, services.gateway.main; print('torch' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE)
    text, _ = await asyncio.wait_for(process.communicate(), START_S)
    assert text == b"False\n"
