"""The target's step loop: the process that owns the model and its arms to the star.

``TargetLoop.step`` is the whole of serving: admit, collect proposals, forward, verify, emit, send.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import NamedTuple

import structlog

from services.target.sequence import Emission, Sequence
from services.target.star import Star
from services.target.stats import StarStats
from starsd.bus.waiting import wait_readable
from starsd.engine.interface import Logits, Row, Runner
from starsd.errors import (
    ContextLengthError,
    EngineError,
    OverloadedError,
    RequestError,
    StarsdError,
)
from starsd.process.channel import LoopChannel
from starsd.process.pace import Every
from starsd.protocol.frames import (
    Cancel,
    Emitted,
    Failed,
    Finished,
    FinishReason,
    Hubs,
    Snapshot,
    Stop,
    Submit,
    ToLoop,
)
from starsd.sampling.verification import verify
from starsd.settings import TargetSettings

log = structlog.get_logger()

SNAPSHOT_S = 0.1
METRICS_S = 1.0
STEP_WEIGHT = 0.2

Wait = Callable[[Many[int], float], None]
"""Returns when a descriptor is readable or after so many seconds."""


class Planned(NamedTuple):
    """A sequence and its row of this step's forward."""

    sequence: Sequence
    row: Row


class TargetLoop:
    """Serves the requests of one front. ``clock`` and ``wait`` are injected by simulations."""

    def __init__(
        self,
        runner: Runner,
        star: Star,
        channel: LoopChannel[ToLoop],
        settings: TargetSettings,
        stats: StarStats,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = wait_readable,
    ) -> None:
        self._runner = runner
        self._star = star
        self._channel = channel
        self._settings = settings
        self._stats = stats
        self._clock = clock
        self._wait = wait
        self._waiting: deque[Submit] = deque()
        self._running: dict[str, Sequence] = {}
        self._free = list(range(runner.slots))
        self._snapshot_due = Every(SNAPSHOT_S, clock).due
        self._metrics_due = Every(METRICS_S, clock).due
        self._stopping = False

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the front says stop or is gone."""
        while not self._stopping and not self._channel.closed:
            self.drain()
            if self.open_requests:
                self.step()
            else:
                self._sleep(SNAPSHOT_S)
            self.report()
        self._star.close()

    @property
    def open_requests(self) -> int:
        """Requests whose terminal frame has not been sent."""
        return len(self._running) + len(self._waiting)

    def step(self) -> None:
        """One token or more for every sequence that moves."""
        self._admit()
        self._collect_proposals()
        planned = self._plan()
        started = self._clock()
        emissions = self._forward(planned)
        self._learn_step_time(planned, self._clock() - started)
        self._emit(emissions)
        self._star.request(self._running.values())

    # -- commands --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Handle all commands and replies that have arrived."""
        for command in self._channel.receive():
            self._obey(command)
        self._star.receive()

    def _obey(self, command: ToLoop) -> None:
        match command:
            case Submit():
                self._submit(command)
            case Cancel():
                self._cancel(command.id)
            case Hubs():
                self._star.update_hubs(command.hubs)
            case Stop():
                self._stopping = True

    def _submit(self, submit: Submit) -> None:
        try:
            self._check(submit)
        except StarsdError as error:
            self._channel.send(Failed(id=submit.id, error=error.body()))
        else:
            self._waiting.append(submit)

    def _check(self, submit: Submit) -> None:
        """The front checked already; a bad id or length must not reach the model all the same."""
        if len(self._waiting) > self._settings.max_waiting + self._runner.slots:
            raise OverloadedError(f"{len(self._waiting)} requests are waiting", retry_after_s=1.0)
        if not submit.prompt:
            raise RequestError("the prompt is empty")
        if len(submit.prompt) >= self._runner.max_length:
            raise ContextLengthError(
                f"prompt of {len(submit.prompt)} tokens; the limit is {self._runner.max_length}"
            )
        if max(submit.prompt) >= self._runner.vocab_size or min(submit.prompt) < 0:
            raise RequestError(f"token id outside the vocabulary of {self._runner.vocab_size}")
        if submit.sampling.seed >= 2**64:
            raise RequestError(f"seed {submit.sampling.seed} does not fit 64 bits", param="seed")

    def _cancel(self, request_id: str) -> None:
        if sequence := self._running.get(request_id):
            self._finish(sequence, FinishReason.CANCELLED)
            return
        for submit in self._waiting:
            if submit.id == request_id:
                self._waiting.remove(submit)
                stats = Sequence.admit(submit, -1, 0).stats
                self._channel.send(
                    Finished(id=request_id, reason=FinishReason.CANCELLED, stats=stats)
                )
                return

    # -- one step --------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Waiting requests take free slots, oldest first, lowest slot first (compact batches)."""
        while self._waiting and self._free:
            submit = self._waiting.popleft()
            sequence = Sequence.admit(submit, heapq.heappop(self._free), self._runner.max_length)
            self._running[sequence.id] = sequence
            self._star.admit(sequence)

    def _collect_proposals(self) -> None:
        """Wait, within the budget, while a proposal is due.

        Everyone waits for everyone: going without the late would split sequences into cohorts
        that alternate, and each would get half the steps.
        """
        self.drain()
        started = self._clock()
        deadline = started + self._star.budget_s
        while (until := self._due_until()) and (now := self._clock()) < min(until, deadline):
            descriptors = [self._channel.fileno(), *self._star.filenos()]
            self._wait(descriptors, min(until, deadline) - now)
            self.drain()
        self._stats.wait_seconds.inc(self._clock() - started)
        self._star.step_over(self._running.values())

    def _due_until(self) -> float | None:
        times = (self._star.due_until(sequence) for sequence in self._running.values())
        return max((time for time in times if time is not None), default=None)

    def _plan(self) -> list[Planned]:
        """Decoding rows first, then prefill chunks, within the token budget of a step."""
        budget = self._settings.step_tokens
        planned = []
        for sequence in sorted(self._running.values(), key=lambda one: not one.decoding):
            if budget > 0:
                row = self._row(sequence, budget)
                planned.append(Planned(sequence, row))
                budget -= len(row.tokens)
        return planned

    def _row(self, sequence: Sequence, budget: int) -> Row:
        """A prefill chunk; its last one, and every row after it, also carries the proposal."""
        chunk = min(budget, self._settings.prefill_chunk)
        tokens = sequence.tokens[sequence.cached : sequence.cached + chunk]
        if sequence.cached + len(tokens) < len(sequence.tokens):
            return Row(sequence.slot, tokens, sequence.cached, want=0)
        del sequence.proposal[max(0, budget - len(tokens)) :]
        return Row(
            sequence.slot,
            tokens + sequence.proposal,
            sequence.cached,
            want=1 + len(sequence.proposal),
        )

    def _forward(self, planned: list[Planned]) -> list[tuple[Sequence, Emission]]:
        """One ragged forward, then verification row by row. A row that fails ends its request."""
        try:
            logits = self._runner.forward([row for _, row in planned])
        except Exception as error:
            log.exception("forward failed", rows=len(planned))
            for sequence, _ in planned:
                self._fail(sequence, error)
            return []
        emissions = []
        for (sequence, row), rows in zip(planned, logits, strict=True):
            try:
                if emission := self._advance(sequence, row, rows):
                    emissions.append((sequence, emission))
            except StarsdError as error:
                self._fail(sequence, error)
        return emissions

    def _advance(self, sequence: Sequence, row: Row, logits: Logits) -> Emission | None:
        """Verify one row's logits ``[want, vocab]``; None while the prompt is being prefilled."""
        if not row.want:
            sequence.cached += len(row.tokens)
            return None
        proposal, sequence.proposal = sequence.proposal, []
        if sequence.decoding and not proposal:
            self._count_fallback(sequence)
        length = len(sequence.tokens)
        sampled = verify(logits, proposal, sequence.sampling, length, sequence.tokens)
        emission = sequence.accept(sampled, proposal)
        if proposal:
            self._stats.round(len(proposal), min(len(emission.tokens), len(sampled) - 1))
        return emission

    def _count_fallback(self, sequence: Sequence) -> None:
        if self._settings.drafting and self._settings.draft_depth and sequence.room > 1:
            sequence.fallbacks += 1
            self._stats.fallback(sequence.star.miss)

    def _learn_step_time(self, planned: list[Planned], took_s: float) -> None:
        """The budget's unit: decayed mean over steps of plain rows only."""
        self._stats.step_seconds.observe(took_s)
        if planned and all(len(row.tokens) == 1 for _, row in planned):
            star = self._star
            star.plain_step_s += STEP_WEIGHT * (took_s - star.plain_step_s)

    def _emit(self, emissions: list[tuple[Sequence, Emission]]) -> None:
        for sequence, (tokens, origins, reason) in emissions:
            self._channel.send(Emitted(id=sequence.id, tokens=tokens, origins=origins))
            if reason is not None:
                self._finish(sequence, reason)

    # -- ends ------------------------------------------------------------------------------------

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._release(sequence)
        self._channel.send(Finished(id=sequence.id, reason=reason, stats=sequence.stats))

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        self._release(sequence)
        known = error if isinstance(error, StarsdError) else EngineError("the engine failed")
        self._channel.send(Failed(id=sequence.id, error=known.body()))

    def _release(self, sequence: Sequence) -> None:
        del self._running[sequence.id]
        heapq.heappush(self._free, sequence.slot)
        self._star.forget(sequence)

    # -- reports ---------------------------------------------------------------------------------

    def report(self) -> None:
        """A snapshot every 100 ms, with metrics every second."""
        if not self._snapshot_due():
            return
        snapshot = Snapshot(
            running=len(self._running),
            waiting=len(self._waiting),
            slots_used=self._runner.slots - len(self._free),
            hubs_usable=self._star.usable_hubs,
            redis=self._star.connected,
            metrics=self._metrics() if self._metrics_due() else None,
        )
        self._channel.send(snapshot)

    def _metrics(self) -> bytes:
        self._stats.slots_usage.set(1 - len(self._free) / self._runner.slots)
        self._stats.breakers_open.set(self._star.breakers_open)
        return self._stats.exposition()

    def _sleep(self, seconds: float) -> None:
        self._wait([self._channel.fileno(), *self._star.filenos()], seconds)
