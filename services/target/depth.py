"""How deep to draft, and whether to wait for it: what promises the most tokens a second is done.

A round takes its trip to the hub and the step that verifies, and gives one token and what is
accepted of the proposal. Whoever does not wait gets the proposal late: its head must first come
true by plain decoding. All rates are estimates from this target's own past.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from services.target.acceptance import CHAIN, Record, surviving
from services.target.guess import Guess
from services.target.sequence import Sequence
from starsd.process.mean import Mean

DECAY = 0.98
"""Weight of a step's time against that of the step after it."""
FIRST_PROBE, MOST_PROBE = 2, 32
"""After so many steps, doubling, something else is tried: drafting where it did not pay, without
waiting, and twice in a row, for a hub is slow until it has read what it missed; half the depth
where all steps were of one size, since only others tell what size costs."""
MARGIN = 0.02
"""What a lesser proposal must promise over the largest: estimates are noisy, the best of many looks
better than it is, and the largest tells the most."""
VARIED = 0.005
"""Least variance of the tokens of a step, as a share of their mean square."""
Trip = Callable[[int], float]
"""Seconds from asking for a proposal of so many levels until it is there."""


class Plan(NamedTuple):
    """What to ask for: at most so many levels, as a tree of ``nodes`` (0: a chain). ``rate`` is
    what it promises, in tokens a second; 0: not known. A token less likely than ``least`` takes
    longer to verify than it saves."""

    depth: int = 0
    nodes: int = CHAIN
    wait: bool = False
    rate: float = 0.0
    least: float = 0.0


class StepTime:
    """Seconds of a decode step as a straight line over its tokens, fitted to decayed history."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5

    def note(self, tokens: int, seconds: float) -> None:
        terms = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = [DECAY * old + new for old, new in zip(self._sums, terms, strict=True)]

    @property
    def known(self) -> bool:
        return self._sums[0] > 0

    @property
    def varied(self) -> bool:
        """Whether steps of late were of different sizes: only they tell the slope."""
        weight, x, _, xx, _ = self._sums
        return weight * xx - x * x > VARIED * weight * xx

    @property
    def slope(self) -> float:
        """Seconds that a token more costs; 0 until steps of different size have been seen."""
        weight, x, y, xx, xy = self._sums
        spread = weight * xx - x * x
        return max(0.0, (weight * xy - x * y) / spread) if spread > 1e-6 * weight * xx else 0.0

    def __call__(self, tokens: float) -> float:
        weight, x, y, *_ = self._sums
        line = y / weight + self.slope * (tokens - x / weight)
        return max(line, 0.1 * y / weight)


class DepthControl:
    """One target's. ``depth`` and ``nodes`` are the most that may be asked for; ``nodes`` beyond
    the depth allow trees."""

    def __init__(self, depth: int, nodes: int) -> None:
        self.shapes = (CHAIN, nodes) if nodes > depth else (CHAIN,)
        self.step_time = StepTime()
        self._depth = depth
        self._tree_nodes = Mean()
        self._believed = Record(depth, self.shapes)
        self._probe_after = self._until_probe = FIRST_PROBE

    def note(self, sequence: Sequence, guess: Guess, path: list[int]) -> None:
        """A hub's proposal was verified, and the nodes in ``path`` were right."""
        self._believed.note(guess, path)
        self._record(sequence).note(guess, path)
        if guess.allowed:
            self._tree_nodes.add(len(guess))

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
        if not most or not self.step_time.known:
            return Plan(most, self.shapes[-1], wait=trip(most) <= budget_s)
        options = dict(self._options(asking, others, trip, budget_s))
        best = max(options, key=options.__getitem__)
        largest = Plan(most, self.shapes[-1], wait=True)
        if best.depth and options.get(largest, 0.0) * (1 + MARGIN) > options[best]:
            best = largest
        rate = options[best]
        least = min(1.0, rate * self.step_time.slope)
        return self._probe(best, most)._replace(rate=rate, least=least)

    def _probe(self, best: Plan, most: int) -> Plan:
        """The best plan, or now and then another one for what it tells."""
        if best.depth and self.step_time.varied:
            self._probe_after = self._until_probe = FIRST_PROBE
            return best
        self._until_probe -= 1
        if self._until_probe > 0:
            return best
        if best.depth or self._until_probe < 0:
            self._probe_after = self._until_probe = min(2 * self._probe_after, MOST_PROBE)
        if best.depth:
            return Plan(best.depth // 2, CHAIN, best.wait)
        return Plan(most, self.shapes[-1])

    def _options(
        self, asking: Mapping[Sequence, int], others: int, trip: Trip, budget_s: float
    ) -> Iterator[tuple[Plan, float]]:
        """Plans and their tokens a second."""
        size = len(asking) + others
        plain_s = self.step_time(size)
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
                steps = max(1, math.ceil(trip_s / plain_s))
                tokens = size * (steps + 1) + sum(gains[steps:depth])
                yield Plan(depth, nodes), tokens / (steps * plain_s + verify_s)

    def rows(self, nodes: int, depth: int) -> float:
        """Tokens of a proposal. Of a tree its hub sends what is likely enough, so those of late
        tell."""
        sent = self._tree_nodes.value if self._tree_nodes.count else nodes
        return min(nodes, sent) if nodes else depth

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
        if plan.nodes or not plan.least:
            return depth
        (chances,) = self._chances([sequence], CHAIN)
        return sum(chance >= plan.least for chance in chances[:depth])


class FixedDepth(DepthControl):
    """Always as deep as allowed, and always waits, as far as budget and breaker let it: the paper's
    design. An estimate of the trip would not do, for where nobody waits it stays too high."""

    def plan(
        self, asking: Mapping[Sequence, int], others: int, trip: Trip, budget_s: float
    ) -> Plan:
        return Plan(self._depth, self.shapes[-1], wait=True)
