"""The loop's end of the socketpair in the test's own hands, and a registry in memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import cast

from starsd.errors import TransportError
from starsd.process.channel import LoopChannel
from starsd.process.spawn import LoopProcess
from starsd.protocol.frames import Snapshot, Started, ToLoop
from starsd.protocol.messages import Limits
from starsd.protocol.pods import DrafterKind, HubPod, Offer, Pod, PodState

DEADLINE_S = 10.0

OFFER = Offer(
    kind=DrafterKind.LM,
    model="m/self",
    revision="r",
    tokenizer="t",
    vocab_size=512,
    max_length=64,
    limits=Limits(max_depth=4),
)
HUB = HubPod(id="hub", boot="b", state=PodState.READY, offer=OFFER)
STARTED = Started(max_length=64, capacity=2, fingerprint="fp", facts_line="fake", offer=OFFER)


def snapshot(running: int = 0, metrics: bytes | None = None, quiet_s: float = 0.0) -> Snapshot:
    given = {"running": running, "waiting": 0, "slots_used": 1}
    return Snapshot(**given, redis=True, metrics=metrics, quiet_s=quiet_s)


async def eventually(condition: Callable[[], object]) -> None:
    """Returns once it is true; fails after a long while."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the condition looks at a socket or a gauge
            await asyncio.sleep(0.002)


class _Process:
    """A process that ends when it is waited for."""

    pid = 1

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._alive = True

    def is_alive(self) -> bool:
        return self._alive

    def join(self, timeout: float) -> None:
        if self._alive:
            self._alive = False
            self._end()

    def terminate(self) -> None:
        raise AssertionError("it has ended")

    kill = terminate


class FakeLoop:
    """``process`` is for the front; ``channel`` and ``next`` are the loop's side."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.channel: LoopChannel[ToLoop] = LoopChannel(theirs, ToLoop)
        fake = _Process(self._ended)
        self.process = LoopProcess(cast(BaseProcess, fake), ours)
        self._seen: list[ToLoop] = []

    def send(self, *messages: object) -> None:
        for message in messages:
            self.channel.send(message)

    def start(self) -> None:
        self.send(STARTED, snapshot())

    def poll(self) -> list[ToLoop]:
        """What the front has sent and ``next`` has not returned yet."""
        if not self.channel.closed:
            self._seen += self.channel.receive()
        return self._seen

    async def next(self) -> ToLoop:
        await eventually(self.poll)
        return self._seen.pop(0)

    def die(self) -> None:
        self.channel.close()

    def _ended(self) -> None:
        self.poll()
        self.channel.close()


class MemoryRegistry:
    """A registry that can be down."""

    def __init__(self) -> None:
        self.published: dict[str, Pod] = {}
        self.ttl_s = 0.0
        self.calls = 0
        self.down = False
        self.closed = False

    def _check(self) -> None:
        self.calls += 1
        if self.down:
            raise TransportError("Redis is down")

    async def publish(self, pod: Pod, ttl_s: float) -> None:
        self._check()
        self.published[pod.id] = pod
        self.ttl_s = ttl_s

    async def withdraw(self, pod_id: str) -> None:
        self._check()
        self.published.pop(pod_id, None)

    async def pods(self) -> list[Pod]:
        self._check()
        return list(self.published.values())

    async def close(self) -> None:
        self.closed = True
