"""How deep to draft, and whether to wait for it: what promises the most tokens a second is done.

A round takes its trip to the hub and the step that verifies, and gives one token and what is
accepted of the proposal. Whoever does not wait gets the proposal late: its head must first come
true by plain decoding. All rates are estimates from this target's own past.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from services.target.acceptance import CHAIN, Record, surviving
from services.target.cost import StepShape, StepTime
from services.target.guess import Guess
from services.target.sequence import Sequence
from starsd.process.mean import Mean

FIRST_PROBE, MOST_PROBE = 2, 32
"""After so many steps, doubling, drafting is tried where it did not pay, without waiting, and twice
in a row, for a hub is slow until it has read what it missed. The most is in trips to the hub where
these take longer than a step."""
MARGIN = 0.02
"""What a lesser proposal must promise over the largest, and a late one over none: estimates are
noisy, the best of many looks better than it is, and the largest tells the most."""
Trip = Callable[[int], float]
"""Seconds from asking for a proposal of so many levels until it is there."""


class Plan(NamedTuple):
    """What to ask for: at most so many levels, as a tree of ``nodes`` (0: a chain). ``rate`` is
    what it promises, in tokens a second; 0: not known. ``prices`` say, in tokens and ascending,
    what each more of a proposal takes to verify; none: nothing."""

    depth: int = 0
    nodes: int = CHAIN
    wait: bool = False
    rate: float = 0.0
    prices: tuple[float, ...] = ()


class DepthControl:
    """One target's, whose steps cost by size as ``shape`` says. ``depth`` and ``nodes`` are the
    most that may be asked for; ``nodes`` beyond the depth allow trees. Where nothing paid nothing
    is reckoned again until a proposal tells more, or others ask."""

    def __init__(self, depth: int, nodes: int, shape: StepShape) -> None:
        self.shapes = (CHAIN, nodes) if nodes > depth else (CHAIN,)
        self.step_time = StepTime(shape)
        self._depth = depth
        self._tree_nodes = Mean()
        self._declined: tuple[set[Sequence], int] | None = None
        self._believed = Record(depth, self.shapes)
        self._probe_after = self._until_probe = FIRST_PROBE

    def note(self, sequence: Sequence, guess: Guess, path: list[int]) -> None:
        """A hub's proposal was verified, and the nodes in ``path`` were right."""
        self._learn(sequence, guess, path)
        if guess.allowed:
            self._tree_nodes.add(len(guess))

    def late(self, sequence: Sequence, guess: Guess, said: list[int]) -> None:
        """A hub's proposal came when so much of the text was there: that tells of its beginning,
        right or wrong, though it may never be verified."""
        told = replace(guess.within(len(said)), asked=min(guess.asked, len(said)))
        self._learn(sequence, told, told.path(said))

    def _learn(self, sequence: Sequence, guess: Guess, path: list[int]) -> None:
        self._declined = None
        self._believed.note(guess, path)
        self._record(sequence).note(guess, path)

    def _record(self, sequence: Sequence) -> Record:
        if sequence.record is None:
            sequence.record = Record(self._depth, self.shapes)
        return sequence.record

    def _chances(self, asking: Iterable[Sequence], nodes: int) -> Iterator[list[float]]:
        """For each sequence ``[depth]``: of each position to be accepted."""
        believed = self._believed.rates(nodes)
        return (surviving(self._record(one).rates(nodes, believed)) for one in asking)

    def plan(
        self, asking: Mapping[Sequence, int], others: int, trip: Trip, budget_s: float
    ) -> Plan:
        """For the next round of sequences that may ask for so many levels each, in a step with
        ``others`` that decode without. No wait is longer than ``budget_s``."""
        most = min(self._depth, max(asking.values(), default=0))
        if not most:
            return Plan()
        size = len(asking) + others
        plain_s = self.step_time(size)
        best, rate = Plan(), size / plain_s
        if self._declined != ({*asking}, others):
            best, rate = self._best(asking, others, trip, budget_s)
            self._declined = None if best.depth else ({*asking}, others)
        plan = self._probe(best, most, MOST_PROBE * max(1, math.ceil(trip(most) / plain_s)))
        prices = self._prices(len(asking), others, plan.nodes or plan.depth)
        return plan._replace(rate=rate, prices=tuple(min(1.0, rate * price) for price in prices))

    def _best(
        self, asking: Mapping[Sequence, int], others: int, trip: Trip, budget_s: float
    ) -> tuple[Plan, float]:
        """The plan that promises the most tokens a second, and how many."""
        options = dict(self._options(asking, others, trip, budget_s))
        best = max(options, key=options.__getitem__)
        largest = Plan(max(plan.depth for plan in options), self.shapes[-1], wait=True)
        if best.depth and options.get(largest, 0.0) * (1 + MARGIN) > options[best]:
            best = largest
        return best, options[best]

    def _prices(self, asking: int, others: int, nodes: int) -> Iterator[float]:
        """Seconds that each token more of every proposal takes to verify."""
        sizes = (asking * (1 + more) + others for more in range(nodes + 1))
        for less, more in itertools.pairwise(map(self.step_time, sizes)):
            yield (more - less) / asking

    def _probe(self, best: Plan, most: int, every: int) -> Plan:
        """The best plan, or instead of none, once in so many steps at least, drafting."""
        if best.depth:
            self._probe_after = self._until_probe = FIRST_PROBE
            return best
        self._until_probe -= 1
        if self._until_probe > 0:
            return best
        if self._until_probe < 0:
            self._probe_after = self._until_probe = min(2 * self._probe_after, every)
        return Plan(most, self.shapes[-1])

    def _options(
        self, asking: Mapping[Sequence, int], others: int, trip: Trip, budget_s: float
    ) -> Iterator[tuple[Plan, float]]:
        """Plans and their tokens a second."""
        size = len(asking) + others
        plain_s = self.step_time(size)
        beside_s = plain_s * self.step_time.beside
        yield Plan(), size / plain_s
        for nodes in self.shapes:
            gains = self._gains(asking, nodes)
            for depth in range(len(gains) if nodes else 1, len(gains) + 1):
                trip_s = trip(depth)
                drafted = sum(self.rows(nodes, min(depth, limit)) for limit in asking.values())
                verify_s = self.step_time(size + drafted)
                if trip_s <= budget_s:
                    rate = (size + sum(gains[:depth])) / (trip_s + verify_s)
                    yield Plan(depth, nodes, wait=True), rate
                steps = max(1, math.ceil(trip_s / beside_s))
                tokens = size * (steps + 1) + sum(gains[steps:depth])
                seconds = steps * beside_s + verify_s
                yield Plan(depth, nodes), tokens / (seconds * (1 + MARGIN))

    def rows(self, nodes: int, depth: int) -> float:
        """Tokens of a proposal. Of a tree its hub sends what is likely enough, so those of late
        tell; the first are taken for chains, so that there are some."""
        return min(nodes, self._tree_nodes.value) if nodes and self._tree_nodes.count else depth

    def _gains(self, asking: Mapping[Sequence, int], nodes: int) -> list[float]:
        """Tokens that each position adds to a step, all sequences together."""
        gains = [0.0] * min(self._depth, max(asking.values()))
        for limit, chances in zip(asking.values(), self._chances(asking, nodes), strict=True):
            for position, chance in enumerate(chances[:limit]):
                gains[position] += chance
        return gains

    def levels(self, sequence: Sequence, plan: Plan, limit: int) -> int:
        """What to ask for this one; a chain ends where a token takes longer to verify than it
        saves."""
        depth = min(plan.depth, limit)
        if plan.nodes or not plan.prices:
            return depth
        (chances,) = self._chances([sequence], CHAIN)
        return sum(map(operator.ge, chances[:depth], plan.prices))


class FixedDepth(DepthControl):
    """Always as deep as allowed, and always waits, as far as budget and breaker let it: the paper's
    design. An estimate of the trip would not do, for where nobody waits it stays too high."""

    def plan(
        self, asking: Mapping[Sequence, int], others: int, trip: Trip, budget_s: float
    ) -> Plan:
        return Plan(self._depth, self.shapes[-1], wait=True)
