"""What the fronts of both model services share: one step loop, one heartbeat, one identity."""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import structlog

from starsd.bus.registry import Registry
from starsd.errors import ErrorBody
from starsd.process.handle import LoopHandle
from starsd.process.heartbeat import Heartbeat, PodRegistry
from starsd.process.spawn import LoopProcess
from starsd.protocol.frames import Started, ToFront
from starsd.protocol.pods import Pod, PodState
from starsd.service import Readiness, cancel
from starsd.settings.common import BusSettings
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings

S = TypeVar("S", TargetSettings, DraftSettings)

log = structlog.get_logger()


def with_identity(settings: S, role: str) -> S:
    """Settings with pod id and boot id filled in, drawn where they were empty."""
    pod_id = settings.id or f"{role}-{secrets.token_hex(4)}"
    boot = settings.boot or secrets.token_hex(8)
    return settings.model_copy(update={"id": pod_id, "boot": boot})


def connect_registry(settings: BusSettings) -> Registry | None:
    """Raises ConfigError for a bad URL. None: no Redis is set, and there is no star."""
    return Registry(settings.redis_url, settings.namespace) if settings.redis_url else None


class ModelFront(ABC):
    """Brings a loop up, vouches for it while it moves, and takes it down."""

    def __init__(
        self,
        settings: TargetSettings | DraftSettings,
        process: LoopProcess,
        registry: PodRegistry | None,
    ) -> None:
        """``registry`` None: no star, no heartbeat."""
        self.state = PodState.STARTING
        self.loop = LoopHandle(process, self.on_message, self.on_death)
        self._heartbeat: Heartbeat | None = None
        if registry is not None:
            every_s, ttl_s = settings.heartbeat_s, settings.pod_ttl_s
            self._heartbeat = Heartbeat(registry, every_s, ttl_s, self._vouched_pod, self.on_pods)

    @abstractmethod
    async def on_started(self, started: Started) -> None:
        """The loop serves; do what remains to be done. Raises StarsdError if that fails."""

    @abstractmethod
    def on_message(self, message: ToFront) -> None:
        """A frame of the loop that is no Started or Snapshot."""

    @abstractmethod
    def on_death(self, error: ErrorBody) -> None:
        """The loop has died; requests must be told."""

    @abstractmethod
    def on_pods(self, pods: Sequence[Pod]) -> None:
        """What the registry held at this beat."""

    @abstractmethod
    def pod(self, started: Started) -> Pod:
        """What to publish about this pod now."""

    async def run(self) -> None:
        """Come up, then vouch for the loop in the registry until cancelled.

        Raises:
            StarsdError: the loop could not start, or died; this process is of no more use.
        """
        started = await self.loop.start()
        await self.on_started(started)
        self.state = PodState.READY
        log.info("ready", facts=started.facts_line)
        beats = [asyncio.create_task(self._heartbeat.run())] if self._heartbeat else []
        try:
            await self.loop.dead()
        finally:
            self.state = PodState.DRAINING
            await cancel(*beats)

    async def publish(self) -> None:
        """Beat once more than it is time to."""
        if self._heartbeat is not None:
            await self._heartbeat.beat()

    async def stop(self) -> None:
        """End the loop, within the deadlines of ``LoopProcess.stop``."""
        self.state = PodState.DRAINING
        await self.loop.stop()

    def readiness(self) -> Readiness:
        """Ready while the loop moves. Without Redis or hubs a pod is degraded, and still ready."""
        snapshot, beat = self.loop.snapshot, self._heartbeat
        details = {
            "state": self.state.value,
            "loop": "moving" if self.loop.fresh else "not moving",
            "redis": snapshot is not None and snapshot.redis,
            "hubs_usable": snapshot.hubs_usable if snapshot else 0,
            "registry": beat is not None and beat.connected is True,
        }
        return Readiness(
            ready=self.state is PodState.READY and self.loop.fresh,
            degraded=beat is not None and not self._star_whole(),
            live=self.loop.alive,
            details=details,
        )

    def _star_whole(self) -> bool:
        """Redis answers both of our processes."""
        snapshot, beat = self.loop.snapshot, self._heartbeat
        return bool(snapshot and snapshot.redis and beat and beat.connected)

    def _vouched_pod(self) -> Pod | None:
        """Only while the loop moves and reaches Redis itself: a hub's queue exists before its pod
        is listed."""
        started, snapshot = self.loop.started, self.loop.snapshot
        vouched = started is not None and self.loop.fresh and snapshot and snapshot.redis
        return self.pod(started) if started is not None and vouched else None
