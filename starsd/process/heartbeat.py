"""A pod's heartbeat: it publishes itself in the registry and learns who else is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from starsd.errors import StarsdError
from starsd.protocol.pods import Pod

log = structlog.get_logger()


class PodRegistry(Protocol):
    """The part of ``starsd.bus.registry.Registry`` used here; all of it raises TransportError."""

    async def publish(self, pod: Pod, ttl_s: float) -> None: ...

    async def withdraw(self, pod_id: str) -> None: ...

    async def pods(self) -> Sequence[Pod]: ...

    async def close(self) -> None: ...


class Heartbeat:
    """Beats while it runs. A registry that is down is logged once, not at every beat."""

    def __init__(
        self,
        registry: PodRegistry,
        interval_s: float,
        ttl_s: float,
        pod: Callable[[], Pod | None],
        on_pods: Callable[[Sequence[Pod]], None],
    ) -> None:
        """``pod`` says what to publish for ``ttl_s``, None while there is nothing to vouch for."""
        self._registry = registry
        self._interval_s = interval_s
        self._ttl_s = ttl_s
        self._pod = pod
        self._on_pods = on_pods
        self._published: str | None = None
        self.connected: bool | None = None
        """Whether the registry answered the latest beat; None before the first."""

    async def run(self) -> None:
        """Beat until cancelled; then leave the registry and close the connection to it."""
        try:
            while True:
                await self._whole_beat()
                await asyncio.sleep(self._interval_s)
        finally:
            await self._leave()

    async def beat(self) -> None:
        """One beat. Whatever goes wrong, the next one tries again."""
        try:
            if (pod := self._pod()) is not None:
                self._published = pod.id
                await self._registry.publish(pod, self._ttl_s)
            self._on_pods(await self._registry.pods())
        except StarsdError as error:
            self._note(False, error.message)
        except Exception:
            log.exception("heartbeat failed")
        else:
            self._note(True, "")

    async def _whole_beat(self) -> None:
        """Cut off in the middle, what it wrote could still arrive after the leave."""
        beat = asyncio.create_task(self.beat())
        try:
            await asyncio.shield(beat)
        finally:
            await asyncio.wait([beat], timeout=self._ttl_s)
            beat.cancel()

    async def _leave(self) -> None:
        with contextlib.suppress(StarsdError):
            if self._published is not None:
                await self._registry.withdraw(self._published)
        with contextlib.suppress(StarsdError):
            await self._registry.close()

    def _note(self, connected: bool, reason: str) -> None:
        if connected == self.connected:
            return
        self.connected = connected
        if connected:
            log.info("registry reached")
        else:
            log.warning("registry lost", reason=reason)
