"""Every known target is asked how it is, each in its own time: a hung one delays no other."""

from __future__ import annotations

import asyncio
import ssl
import time

import httpx
import msgspec

from services.gateway.pool import Pool, Target
from starsd.protocol.events import INFO_PATH
from starsd.protocol.pods import TargetPod
from starsd.service import cancel

MAX_INFO_BYTES = 64 * 1024
PAUSE_S = 0.005
"""Least time between two probes; of very many targets each is probed less often."""


class Prober:
    """Probes the pool's targets every ``interval_s``, each probe at most ``timeout_s`` long."""

    def __init__(
        self,
        pool: Pool,
        client: httpx.AsyncClient,
        *,
        interval_s: float,
        timeout_s: float,
        lost_s: float,
    ) -> None:
        self._pool = pool
        self._client = client
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._lost_s = lost_s
        self._decoder = msgspec.json.Decoder(TargetPod)
        self._probes: dict[Target, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Probe until cancelled, after ``first_round``: evenly spread, for a burst of very many
        would stall the answers under way."""
        try:
            while True:
                targets = self._pool.targets
                pause_s = max(PAUSE_S, self._interval_s / max(1, len(targets)))
                for target in targets:
                    await asyncio.sleep(pause_s)
                    self._start(target)
                if not targets:
                    await asyncio.sleep(self._interval_s)
        finally:
            await cancel(*self._probes.values())

    async def first_round(self) -> None:
        """One probe of each, so that a starting gateway knows whom it can serve with."""
        await asyncio.gather(*(self.probe(target) for target in self._pool.targets))

    def _start(self, target: Target) -> None:
        self._probes = {t: task for t, task in self._probes.items() if not task.done()}
        if target not in self._probes:
            self._probes[target] = asyncio.create_task(self.probe(target), name="probe")

    async def probe(self, target: Target) -> None:
        """One probe; its result goes into the pool. Raises nothing.

        A request that failed meanwhile is newer evidence than an answer begun before it.
        """
        failures = target.failures
        try:
            async with asyncio.timeout(self._timeout_s):
                pod = await self._info(target)
        except TimeoutError:
            self._bad(target, f"no answer within {self._timeout_s} s")
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, RecursionError) as error:
            self._bad(target, f"{type(error).__name__}: {error}")
        else:
            if target.failures == failures:
                self._pool.heard(target, pod)

    async def _info(self, target: Target) -> TargetPod:
        async with self._client.stream("GET", target.url + INFO_PATH) as response:
            response.raise_for_status()
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_INFO_BYTES:
                    raise msgspec.DecodeError(f"info is over {MAX_INFO_BYTES} bytes")
        return self._decoder.decode(body)

    def _bad(self, target: Target, reason: str) -> None:
        self._pool.failed(target, reason)
        if time.monotonic() - target.heard_at > self._lost_s:
            target.lose()


def probe_client(timeout_s: float, tls: ssl.SSLContext) -> httpx.AsyncClient:
    """Apart from the requests' client, whose connections may all be busy."""
    return httpx.AsyncClient(timeout=timeout_s, verify=tls, trust_env=False)
