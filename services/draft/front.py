"""The hub's front: it vouches for the hub in the registry, and shows its health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from starsd.errors import EngineError, ErrorBody, StarsdError
from starsd.process.front import ModelFront
from starsd.process.heartbeat import PodRegistry
from starsd.process.spawn import LoopProcess
from starsd.protocol.frames import Drain, Started, ToFront
from starsd.protocol.pods import HubPod, Pod, PodState
from starsd.settings.draft import DraftSettings

log = structlog.get_logger()

POLL_S = 0.05
BEATS = 2
"""Heartbeats within which every target has read the registry, and sent what it then still had."""


class DraftFront(ModelFront):
    """One per process. Jobs come over Redis, so there is nothing to serve over HTTP."""

    def __init__(
        self, settings: DraftSettings, process: LoopProcess, registry: PodRegistry | None
    ) -> None:
        """``settings`` have their identity (``starsd.process.front.with_identity``)."""
        super().__init__(settings, process, registry)
        self._settings = settings

    def exposition(self) -> bytes:
        """The loop's metrics as Prometheus text."""
        return self.loop.metrics

    async def drain(self) -> None:
        """Tell targets to go elsewhere and serve on until they have: nothing is asked any more, for
        as long as they may take to hear of it."""
        if self.state is not PodState.READY:
            return
        self.state = PodState.DRAINING
        with contextlib.suppress(StarsdError, TimeoutError):  # the loop died; or so be it
            async with asyncio.timeout(self._settings.drain_s):
                self.loop.send(Drain())
                await self.publish()
                while not self._deserted:  # noqa: ASYNC110 - snapshots come ten times a second
                    await asyncio.sleep(POLL_S)

    @property
    def _deserted(self) -> bool:
        snapshot = self.loop.snapshot
        heard_s = BEATS * self._settings.heartbeat_s
        return snapshot is not None and not snapshot.running and snapshot.quiet_s >= heard_s

    async def on_started(self, started: Started) -> None:
        if started.offer is None:
            raise EngineError("the hub's loop made no offer")

    def on_message(self, message: ToFront) -> None:
        log.warning("unexpected frame", kind=type(message).__name__)

    def on_death(self, error: ErrorBody) -> None:
        """Targets notice by themselves: nobody is told."""

    def on_pods(self, pods: Sequence[Pod]) -> None:
        """A hub needs to know of nobody."""

    def pod(self, started: Started) -> HubPod:
        assert started.offer is not None, "checked at start"
        used = self.loop.snapshot.slots_used if self.loop.snapshot else 0
        return HubPod(
            id=self._settings.id,
            boot=self._settings.boot,
            state=self.state,
            offer=started.offer,
            free_slots=max(0, started.capacity - used),
        )
