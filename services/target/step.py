"""The target's step loop: the process that owns the model and its arms to the star.

``TargetLoop.step`` is the whole of serving: admit, collect proposals, forward, verify, emit, send.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many

import structlog

from services.target.features import Features
from services.target.packing import Packer, Planned
from services.target.sequence import Emission, Sequence
from services.target.slots import Slots
from services.target.star import Star
from services.target.stats import StarStats
from services.target.verifying import Verifier
from starsd.bus.waiting import wait_readable
from starsd.engine.interface import Runner
from starsd.errors import (
    ContextLengthError,
    EngineError,
    OverloadedError,
    RequestError,
    StarsdError,
)
from starsd.grammar.compiler import GrammarCompiler
from starsd.process.channel import LoopChannel
from starsd.process.pace import Every
from starsd.process.parts import charged
from starsd.protocol.frames import (
    Admitted,
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
from starsd.settings.target import TargetSettings

log = structlog.get_logger()

SNAPSHOT_S = 0.1
METRICS_S = 1.0
STEP_WEIGHT = 0.2
LONG_JUMP = 4
"""As many tokens forced by a grammar are worth a round without a hub."""

Wait = Callable[[Many[int], float], object]
"""Returns when a descriptor is readable or after so many seconds."""


class TargetLoop:
    """Serves the requests of one front. ``clock`` and ``wait`` are injected by simulations."""

    def __init__(
        self,
        runner: Runner,
        star: Star,
        channel: LoopChannel[ToLoop],
        settings: TargetSettings,
        stats: StarStats,
        features: Features,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = wait_readable,
        *,
        grammars: GrammarCompiler,
    ) -> None:
        self._runner = runner
        self._star = star
        self._channel = channel
        self._settings = settings
        self._stats = stats
        self._features = features
        self._grammars = grammars
        self._parts = stats.parts
        self._clock = clock
        self._wait = wait
        self._waiting: deque[Sequence] = deque()
        self._slots = Slots(runner, features, stats, settings.prefix_cache)
        self._running = self._slots.running
        self._packer = Packer(runner, self._slots, settings)
        self._verifier = Verifier(runner, star, settings, stats, features)
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

    @charged("python")
    def step(self) -> None:
        """One token or more for every sequence that moves."""
        self._preempt()
        self._admit()
        self._collect_proposals()
        planned = self._packer.plan()
        started = self._clock()
        emissions = self._forward(planned)
        self._learn_step_time(planned, self._clock() - started)
        self._emit(emissions)
        self._star.request(self._running.values())

    # -- commands --------------------------------------------------------------------------------

    @charged("transport")
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
            sequence = Sequence.of(submit, self._runner.max_length)
            if submit.grammar is not None:
                sequence.grammar = self._grammars.start(submit.grammar, submit.eos)
        except StarsdError as error:
            self._channel.send(Failed(id=submit.id, error=error.body()))
        else:
            self._waiting.append(sequence)

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
        for sequence in (*self._running.values(), *self._waiting):
            if sequence.id == request_id:
                self._finish(sequence, FinishReason.CANCELLED)
                return

    # -- one step --------------------------------------------------------------------------------

    def _preempt(self) -> None:
        """Where memory is short the youngest sequences go back to the head of the line."""
        for sequence in self._slots.make_room():
            sequence.preempt()
            self._star.pause(sequence)
            self._waiting.appendleft(sequence)
            self._stats.preemptions.inc()

    def _admit(self) -> None:
        """Those who wait take slots and memory, oldest first: nobody overtakes a long prompt."""
        while self._waiting and self._slots.admit(self._waiting[0]):
            sequence = self._waiting.popleft()
            self._star.admit(sequence)
            if not sequence.preempted:
                self._channel.send(Admitted(id=sequence.id))

    def _collect_proposals(self) -> None:
        """Wait, within the budget, while a proposal is due.

        Everyone waits for everyone: going without the late would split sequences into cohorts
        that alternate, and each would get half the steps. Where the text repeats itself at length,
        or a grammar forces it, it is not waited for; whoever got nothing repeats what it can.
        """
        self.drain()
        self._jump()
        self._repeat(self._settings.ngram)
        started = self._clock()
        deadline = started + self._star.budget_s
        while (until := self._due_until()) and (now := self._clock()) < min(until, deadline):
            descriptors = [self._channel.fileno(), *self._star.filenos()]
            with self._parts.wait:
                self._wait(descriptors, min(until, deadline) - now)
            self.drain()
        self._stats.wait_seconds.inc(self._clock() - started)
        self._star.step_over(self._running.values())
        self._repeat()

    def _repeat(self, least: int = 0) -> None:
        """Local proposals: from ``least`` matching tokens on instead of a hub's, else for want of
        one."""
        longest = self._settings.ngram if self._settings.drafting else 0
        for sequence in self._running.values():
            if longest and sequence.decoding and (least or not sequence.proposal):
                sequence.repeat(longest, least)

    def _jump(self) -> None:
        for sequence in self._running.values():
            if self._settings.drafting and sequence.decoding and not sequence.proposal:
                sequence.jump(LONG_JUMP)

    def _due_until(self) -> float | None:
        times = (self._star.due_until(sequence) for sequence in self._running.values())
        return max((time for time in times if time is not None), default=None)

    def _forward(self, planned: list[Planned]) -> list[tuple[Sequence, Emission]]:
        """One ragged forward, then verification row by row. A row that fails ends its request."""
        try:
            with self._parts.forward:
                logits = self._runner.forward([row for _, row in planned])
        except Exception as error:
            log.exception("forward failed", rows=len(planned))
            for sequence, _ in planned:
                self._fail(sequence, error)
            return []
        emissions = []
        states = self._features.of_forward(len(planned))
        for (sequence, row), rows, seen in zip(planned, logits, states, strict=True):
            try:
                if emission := self._verifier.advance(sequence, row, rows, seen):
                    emissions.append((sequence, emission))
            except StarsdError as error:
                self._fail(sequence, error)
        return emissions

    def _learn_step_time(self, planned: list[Planned], took_s: float) -> None:
        """The budget's unit: decayed mean over steps of plain rows only. What verification costs
        is learned from all steps in which nobody prefills."""
        self._stats.step_seconds.observe(took_s)
        if planned and all(len(row.tokens) == row.want for _, row in planned):
            tokens = sum(row.want for _, row in planned)
            self._star.control.step_time.note(tokens, took_s, beside=self._star.drafting)
            if tokens == len(planned):
                star = self._star
                star.plain_step_s += STEP_WEIGHT * (took_s - star.plain_step_s)

    @charged("transport")
    def _emit(self, emissions: list[tuple[Sequence, Emission]]) -> None:
        for sequence, (tokens, origins, reason, found) in emissions:
            emitted = Emitted(id=sequence.id, tokens=tokens, origins=origins, logprobs=found)
            self._channel.send(emitted)
            if reason is not None:
                self._finish(sequence, reason)

    # -- ends ------------------------------------------------------------------------------------

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        self._forget(sequence)
        self._channel.send(Finished(id=sequence.id, reason=reason, stats=sequence.stats))

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        self._forget(sequence, keep=False)
        known = error if isinstance(error, StarsdError) else EngineError("the engine failed")
        self._channel.send(Failed(id=sequence.id, error=known.body()))

    def _forget(self, sequence: Sequence, *, keep: bool = True) -> None:
        if sequence.id in self._running:
            self._slots.release(sequence, keep=keep)
        else:
            self._waiting.remove(sequence)
        self._star.forget(sequence)

    # -- reports ---------------------------------------------------------------------------------

    @charged("transport")
    def report(self) -> None:
        """A snapshot every 100 ms, with metrics every second."""
        if not self._snapshot_due():
            return
        snapshot = Snapshot(
            running=len(self._running),
            waiting=len(self._waiting),
            slots_used=len(self._running),
            hubs_usable=self._star.usable_hubs,
            redis=self._star.connected,
            metrics=self._metrics() if self._metrics_due() else None,
        )
        self._channel.send(snapshot)

    def _metrics(self) -> bytes:
        self._stats.kv(self._slots.blocks_used, self._slots.blocks_kept, self._runner.kv_blocks)
        self._stats.breakers_open.set(self._star.breakers_open)
        return self._stats.exposition()

    def _sleep(self, seconds: float) -> None:
        self._wait([self._channel.fileno(), *self._star.filenos()], seconds)
