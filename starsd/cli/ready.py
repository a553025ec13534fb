"""Waiting until services say that they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import httpx

POLL_S = 0.2
PROBE_TIMEOUT_S = 2.0


async def wait_ready(
    urls: Mapping[str, str], timeout_s: float, tell: Callable[[str, float], None]
) -> set[str]:
    """Poll each service's URL until it answers 200; ``tell`` is called with name and seconds.

    Returns the names that were not ready within ``timeout_s``.
    """
    missing = set(urls)

    async def watch(client: httpx.AsyncClient, name: str, began: float) -> None:
        while name in missing:
            if await _is_ready(client, urls[name]):
                missing.discard(name)
                tell(name, asyncio.get_running_loop().time() - began)
            await asyncio.sleep(POLL_S)

    began = asyncio.get_running_loop().time()
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(timeout=PROBE_TIMEOUT_S, trust_env=False) as client,
            asyncio.TaskGroup() as group,
        ):
            for name in urls:
                group.create_task(watch(client, name, began))
    return missing


async def _is_ready(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).is_success
    except httpx.HTTPError:
        return False
