"""A star as discrete events: targets that verify, jobs that travel, a hub that drafts step by step.

The same costs as the formulas, but every wait, every batch and every round's luck one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from starsd.drafters.lulls import AHEAD_ROWS, Lulls
from starsd.plan.acceptance import Outcomes
from starsd.plan.costs import Costs
from starsd.plan.star import STARS, Figures, Mode, Star

LOOK_S = 0.1
"""An idle hub looks so often whether a lull proves long."""
Process = Generator[simpy.Event, Any, None]
VerifySeconds = Callable[[int], float]
"""Of a step of so many rows, each time anew."""


@dataclass(eq=False)
class Speculation:
    """What an idle hub drafted past a sequence's last proposal, for whatever the target may say of
    it: the token that it adds, and then as many as the next proposal is to have."""

    wanted: int
    drafted: int = 0


@dataclass(eq=False)
class Job:
    """``left`` tokens are to be drafted; ``done`` tells that they are. ``ahead`` is what the hub
    may have of them, if what the target said was ``foreseen``."""

    left: int
    done: simpy.Event
    ahead: Speculation | None = None
    foreseen: bool = False
    fresh: bool = True
    """No step has read it yet."""


@dataclass
class Counted:
    """From ``since`` on. ``rounds`` are steps of a sequence that go on an answer, ``round_tokens``
    what they gave and ``gaps_s`` the time between their ends; ``waited_s`` is that of targets for
    proposals."""

    since: float
    tokens: int = 0
    rounds: int = 0
    round_tokens: int = 0
    gaps_s: float = 0.0
    busy_s: float = 0.0
    hits: int = 0
    waited_s: float = 0.0


@dataclass
class Stage:
    """What all share."""

    env: simpy.Environment
    star: Star
    costs: Costs
    verify_s: VerifySeconds
    counted: Counted


class Hub:
    """Jobs come by ``put``; ``speculate`` gives it something to do in idle time."""

    def __init__(self, stage: Stage) -> None:
        self._env, self._costs, self._counted = stage.env, stage.costs, stage.counted
        self._mode = stage.star.mode
        self._arrived: list[Job] = []
        self._jobs: list[Job] = []
        self._speculations: list[Speculation] = []
        self._lulls = Lulls()
        self._news = self._env.event()
        self._env.process(self._serve())

    def put(self, job: Job) -> None:
        self._arrived.append(job)
        self._wake()

    def speculate(self, one: Speculation) -> None:
        self._speculations.append(one)
        self._wake()

    def _wake(self) -> None:
        if not self._news.triggered:
            self._news.succeed()

    def _serve(self) -> Process:
        while True:
            yield from self._admit()
            if self._jobs:
                yield from self._step(self._jobs[:1] if self._mode is Mode.FIFO else self._jobs[:])
            elif self._lulls.enough(self._env.now) and (ahead := self._unfinished()):
                yield from self._run_ahead(ahead)
            elif not self._arrived:
                self._news = self._env.event()
                yield self._news | self._env.timeout(LOOK_S)

    def _unfinished(self) -> list[Speculation]:
        """Those of which least is drafted, of equals the last served."""
        some = [one for one in reversed(self._speculations) if one.drafted < one.wanted]
        return sorted(some, key=lambda one: one.drafted)[:AHEAD_ROWS]

    def _run_ahead(self, ahead: Sequence[Speculation]) -> Process:
        seconds = self._costs.draft_next(len(ahead))
        yield from self._compute(seconds)
        self._lulls.stepped(seconds)
        for one in ahead:
            one.drafted += 1

    def _admit(self) -> Process:
        """Jobs that came during the last step. What was drafted ahead is theirs, or wrong."""
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._lulls.ended(self._env.now)
        for job in arrived:
            if job.ahead is not None:
                self._speculations.remove(job.ahead)
                job.left -= max(0, job.ahead.drafted - 1) if job.foreseen else 0
        if self._env.now >= self._counted.since:
            self._counted.hits += sum(job.left <= 0 for job in arrived)
        self._jobs += (job for job in arrived if job.left > 0)
        yield from self._answer([job for job in arrived if job.left <= 0])

    def _step(self, batch: Sequence[Job]) -> Process:
        """A token for each."""
        first = any(job.fresh for job in batch)
        curve = self._costs.draft_first if first else self._costs.draft_next
        yield from self._compute(curve(len(batch)))
        for job in batch:
            job.fresh, job.left = False, job.left - 1
        finished = [job for job in batch if job.left <= 0]
        self._jobs = [job for job in self._jobs if job.left > 0]
        yield from self._answer(finished)

    def _answer(self, finished: Sequence[Job]) -> Process:
        if finished:
            yield self._env.timeout(self._costs.hub_job_s * len(finished))
        for job in finished:
            job.done.succeed()

    def _compute(self, seconds: float) -> Process:
        began = self._env.now
        yield self._env.timeout(seconds)
        self._counted.busy_s += max(0.0, self._env.now - max(began, self._counted.since))


@dataclass(eq=False)
class Stream:
    """A sequence at a target, whose answers follow each other. ``proposed`` None: an answer begins
    at ``begins_s``, with a plain step. ``foreseen`` tells of what became of the last proposal."""

    outcomes: Outcomes
    begins_s: float
    settled_at: float = 0.0
    proposed: int | None = None
    speculation: Speculation | None = None
    foreseen: bool = False


class Target:
    """Verifies all of its sequences in one step, once all their proposals are there."""

    def __init__(self, stage: Stage, hub: Hub | None, futures: Sequence[Outcomes], at: float):
        self._stage, self._env, self._hub = stage, stage.env, hub
        self._streams = [Stream(one, at) for one in futures]
        self._env.process(self._run())

    def _run(self) -> Process:
        while True:
            if not (moving := self._moving()):
                begins_s = min(one.begins_s for one in self._streams)
                yield self._env.timeout(begins_s - self._env.now)
                moving = self._moving()
            yield from self._draft([one for one in moving if one.proposed is not None])
            rows = sum(1 + (one.proposed or 0) for one in moving)
            yield self._env.timeout(self._stage.verify_s(rows) + self._stage.costs.target_step_s)
            for one in moving:
                self._settle(one)

    def _moving(self) -> list[Stream]:
        return [
            one
            for one in self._streams
            if one.proposed is not None or one.begins_s <= self._env.now
        ]

    def _draft(self, drafting: Sequence[Stream]) -> Process:
        """Proposals for them, if there is anybody to draft."""
        began, counted = self._env.now, self._stage.counted
        if self._stage.star.mode is Mode.COLOCATED:
            yield from self._draft_here(drafting)
        elif self._hub is not None:
            asked = [self._env.process(self._ask(one, self._hub)) for one in drafting]
            yield self._env.all_of(asked)
        counted.waited_s += max(0.0, self._env.now - max(began, counted.since))

    def _draft_here(self, drafting: Sequence[Stream]) -> Process:
        if drafting:
            depth = self._stage.star.depth
            yield self._env.timeout(self._stage.costs.service_s(depth, len(drafting)))
        for one in drafting:
            one.proposed = self._depth(one)

    def _ask(self, one: Stream, hub: Hub) -> Process:
        one.proposed = depth = self._depth(one)
        if not depth:
            return
        way_s = self._stage.costs.network_s / 2
        yield self._env.timeout(way_s)
        job = Job(depth, self._env.event(), one.speculation, one.foreseen)
        hub.put(job)
        yield job.done
        if self._stage.star.mode is Mode.RUN_AHEAD:
            one.speculation = Speculation(wanted=1 + depth)
            hub.speculate(one.speculation)
        yield self._env.timeout(way_s)

    def _depth(self, one: Stream) -> int:
        return max(0, min(self._stage.star.depth, one.outcomes.room()))

    def _settle(self, one: Stream) -> None:
        proposed, goes_on = one.proposed or 0, one.proposed is not None
        accepted, one.foreseen, last = one.outcomes.next(proposed)
        one.proposed = None if last else 0
        if last:
            one.begins_s = self._env.now + self._stage.costs.request_s
        counted = self._stage.counted
        if one.settled_at >= counted.since:
            counted.tokens += accepted + 1
            counted.rounds += goes_on
            counted.round_tokens += goes_on * (accepted + 1)
            counted.gaps_s += goes_on * (self._env.now - one.settled_at)
        one.settled_at = self._env.now


@dataclass(frozen=True)
class Simulated(Figures):
    """``hits``: rounds whose proposal was drafted before it was asked for. ``wait_s`` of a round
    passed between asking for a proposal and having it."""

    hits: float
    wait_s: float


def simulate(
    star: Star,
    costs: Costs,
    outcomes: Callable[[int], Outcomes],
    horizon_s: float,
    warm_up_s: float = 0.0,
    verify_s: VerifySeconds | None = None,
) -> Simulated:
    """Figures of the time between ``warm_up_s`` and ``horizon_s``.

    ``outcomes`` makes the future of sequence 0, 1, ... ; ``verify_s`` instead of the costs' own
    curve may differ from step to step. Targets begin one after the other, not in step.
    """
    counted = Counted(since=warm_up_s)
    stage = Stage(simpy.Environment(), star, costs, verify_s or costs.verify, counted)
    hubs = [Hub(stage) for _ in range(star.hubs)] if star.mode in STARS else [None]
    for number in range(star.targets):
        mine = range(number * star.sequences, (number + 1) * star.sequences)
        begins_s = costs.return_s(star.depth) * number / star.targets
        Target(stage, hubs[number % len(hubs)], [outcomes(one) for one in mine], begins_s)
    stage.env.run(horizon_s)
    return _summed(star, counted, horizon_s - warm_up_s)


def _summed(star: Star, counted: Counted, seconds: float) -> Simulated:
    rounds = max(1, counted.rounds)
    return Simulated(
        throughput=counted.tokens / seconds,
        round_s=counted.gaps_s / rounds,
        tokens_per_round=counted.round_tokens / rounds,
        busy=counted.busy_s / seconds / star.hubs,
        hits=counted.hits / rounds,
        wait_s=star.sequences * counted.waited_s / rounds,
    )
