"""The star's arms in memory, for tests: both buses with the semantics of the Redis ones."""

from __future__ import annotations

import time
from collections.abc import Callable

from starsd.bus.bell import Bell
from starsd.bus.hub import MAX_DELIVERIES
from starsd.bus.interface import BadJob, Garbage, Job, QueueGone, Reconnected, TargetEvent
from starsd.bus.memory_streams import MemoryStreams
from starsd.bus.screening import bad_answer, check_reply_key, decode_job
from starsd.bus.streams import Entry
from starsd.errors import ProtocolError
from starsd.protocol.codec import decode_to_target, encode
from starsd.protocol.messages import Propose, ToHub, ToTarget


class MemoryBroker(MemoryStreams):
    """The server in memory, and the buses that use it."""

    def target_bus(self, target: str, boot: str) -> MemoryTargetBus:
        return MemoryTargetBus(self, target, boot)

    def hub_bus(self, hub: str, boot: str, offer_digest: str) -> MemoryHubBus:
        return MemoryHubBus(self, hub, boot, offer_digest)


class _MemoryBus:
    """Queued operations run at ``flush``; those of a broker that is down are dropped."""

    def __init__(self, broker: MemoryStreams) -> None:
        self._broker = broker
        self._bell = Bell()
        self._queue: list[Callable[[], None]] = []
        self._seen = 0
        broker.watch(self._bell)

    @property
    def connected(self) -> bool:
        return self._broker.up and self._seen == self._broker.generation

    def filenos(self) -> list[int]:
        return [self._bell.fileno()]

    def _run_queue(self) -> None:
        queue, self._queue = self._queue, []
        with self._broker.lock:
            for operation in queue if self.connected else ():
                operation()

    def _reconnects(self) -> bool:
        """True once for each time the broker came up."""
        new = self._broker.up and self._seen != self._broker.generation
        self._seen = self._broker.generation if self._broker.up else 0
        return new

    def _leave(self) -> None:
        self._broker.unwatch(self._bell)
        self._bell.close()


class MemoryTargetBus(_MemoryBus):
    """Implements ``TargetBus``."""

    def __init__(self, broker: MemoryStreams, target: str, boot: str) -> None:
        super().__init__(broker)
        self._reply_key = broker.keys.reply_stream(target, boot)
        self._events: list[TargetEvent] = []

    @property
    def reply_key(self) -> str:
        return self._reply_key

    def send_first(self, offer_digest: str, job: Propose) -> None:
        self._send(self._broker.keys.offer_queue(offer_digest), job)

    def send_hub(self, hub: str, message: ToHub) -> None:
        self._send(self._broker.keys.hub_queue(hub), message)

    def _send(self, queue: str, message: ToHub) -> None:
        data = encode(message)

        def add() -> None:
            if not self._broker.add(queue, data) and QueueGone(queue) not in self._events:
                self._events.append(QueueGone(queue))

        if self.connected:
            self._queue.append(add)

    def flush(self) -> None:
        self._run_queue()

    def receive(self) -> list[TargetEvent]:
        self._bell.clear()
        if self._reconnects():
            self._events.append(Reconnected())
        if self.connected:
            self._events += [_event(entry) for entry in self._broker.drain(self._reply_key)]
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self._run_queue()
        self._broker.delete(self._reply_key)
        self._leave()


def _event(entry: Entry) -> TargetEvent:
    try:
        return decode_to_target(entry.data or b"")
    except ProtocolError as error:
        return Garbage(f"{entry.queue} {entry.id}: {error.message}")


class MemoryHubBus(_MemoryBus):
    """Implements ``HubBus``."""

    def __init__(self, broker: MemoryStreams, hub: str, boot: str, offer_digest: str) -> None:
        super().__init__(broker)
        self._hub, self._boot, self._consumer = hub, boot, f"{hub}:{boot}"
        self._sticky = broker.keys.hub_queue(hub)
        self._offer = broker.keys.offer_queue(offer_digest)
        self._held: set[tuple[str, str]] = set()
        self._inbox: list[Job | BadJob] = []
        self._gone: set[str] = set()

    def receive(self, timeout_s: float, *, want_first: int) -> list[Job | BadJob]:
        deadline = time.monotonic() + timeout_s
        self._poll(want_first)
        while not self._inbox and (left := deadline - time.monotonic()) > 0:
            self._bell.wait(min(left, 0.02))
            self._poll(want_first)
        jobs, self._inbox = self._inbox, []
        return jobs

    def _poll(self, room: int) -> None:
        self._bell.clear()
        own = self._reconnects()
        if not self.connected:
            return
        for key, held in self._held:
            self._broker.refresh(key, held)
        for queue in (self._sticky, self._offer):
            for entry, deliveries in self._broker.claim(queue, self._consumer, own=own):
                self._screen(entry, deliveries)
            for entry in self._broker.read_group(
                queue, self._consumer, room if queue == self._offer else 64
            ):
                self._screen(entry, 1)
        self._run_queue()

    def _screen(self, entry: Entry, deliveries: int) -> None:
        if (entry.queue, entry.id) in self._held:
            return
        try:
            if deliveries > MAX_DELIVERIES:
                raise ProtocolError(f"delivered {deliveries} times and never answered")
            message = decode_job(self._broker.keys, entry.data)
        except ProtocolError as error:
            self._condemn(entry, error.message)
            return
        self._held.add((entry.queue, entry.id))
        first = entry.queue == self._offer
        self._inbox.append(Job(entry.id, entry.queue, message, self._age_s(entry), first))

    def _age_s(self, entry: Entry) -> float:
        return max(0.0, time.time() - int(entry.id.partition("-")[0]) / 1000)

    def _condemn(self, entry: Entry, reason: str) -> None:
        data = entry.data or b""
        self._broker.dead.append(data)
        if (answer := bad_answer(self._broker.keys, data, self._hub, self._boot)) is not None:
            self.reply(*answer)
        self._queue.append(lambda: self._broker.acknowledge(entry.queue, entry.id))
        self._inbox.append(BadJob(f"{entry.queue} {entry.id}: {reason}"))

    def reply(self, reply_key: str, message: ToTarget) -> None:
        check_reply_key(self._broker.keys, reply_key)
        data = encode(message)

        def add() -> None:
            if not self._broker.add(reply_key, data):
                self._gone.add(reply_key)

        if self.connected:
            self._queue.append(add)

    def done(self, job: Job) -> None:
        self._held.discard((job.queue, job.entry))
        self._queue.append(lambda: self._broker.acknowledge(job.queue, job.entry))

    def flush(self) -> list[str]:
        self._run_queue()
        gone, self._gone = sorted(self._gone), set()
        return gone

    def close(self) -> None:
        self._run_queue()
        self._broker.delete(self._sticky)
        self._leave()
