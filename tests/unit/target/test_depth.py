"""Depth and patience, in worlds whose costs and acceptance are known exactly."""

from __future__ import annotations

import itertools
import random

import pytest

from services.target.cost import StepShape
from services.target.depth import MOST_PROBE, DepthControl, FixedDepth, Plan
from services.target.guess import Guess
from services.target.sequence import Sequence
from tests.unit.target.recording import FLAT, make_sequence

DEPTH = 6
ROUNDS = 800
"""In a quarter of which a control may learn."""


def line(base_s: float, token_s: float) -> StepShape:
    return StepShape({tokens: base_s + token_s * tokens for tokens in (1, 2)})


class World:
    """A batch of sequences: a step costs ``base_s`` and ``token_s`` a token, a trip to the hub
    ``way_s`` and ``level_s`` a level, and a guess is right with ``rate``. A late proposal comes
    when ``steps`` plain ones are over, each of which takes ``beside`` times as long."""

    def __init__(
        self,
        rate: float,
        *,
        way_s: float = 0.002,
        level_s: float = 0.001,
        base_s: float = 0.02,
        token_s: float = 0.0,
        beside: float = 1.0,
        size: int = 1,
    ) -> None:
        self.rate = rate
        self.way_s, self.level_s = way_s, level_s
        self.base_s, self.token_s, self.beside = base_s, token_s, beside
        self.sequences = [make_sequence(seq=str(number)) for number in range(size)]
        self._random = random.Random(5)

    def trip_s(self, depth: int) -> float:
        return self.way_s + self.level_s * depth

    def step_s(self, tokens: int) -> float:
        return self.base_s + self.token_s * tokens

    @property
    def plain(self) -> float:
        """Tokens a second without drafting."""
        size = len(self.sequences)
        return size / self.step_s(size)

    def control(self) -> DepthControl:
        """One that has measured what steps cost here."""
        return DepthControl(DEPTH, 0, line(self.base_s, self.token_s))

    def speed(self, control: DepthControl, rounds: int = ROUNDS) -> float:
        """Tokens a second under this control, once it has learned."""
        tokens = seconds = 0.0
        for number in range(rounds):
            if number == rounds // 4:
                tokens = seconds = 0.0
            gained, took = self._round(control)
            tokens, seconds = tokens + gained, seconds + took
        return tokens / seconds

    def _round(self, control: DepthControl) -> tuple[int, float]:
        asking = dict.fromkeys(self.sequences, DEPTH)
        size = len(asking)
        plan = control.plan(asking, 0, self.trip_s, budget_s=self.base_s * 4)
        depths = {one: control.levels(one, plan, DEPTH) for one in asking}
        if not any(depths.values()):
            control.step_time.note(size, self.step_s(size))
            return size, self.step_s(size)
        deepest = max(depths.values())
        late_s = self.step_s(size) * self.beside
        late = 0 if plan.wait else 1 + int(self.trip_s(deepest) / late_s)
        for _ in range(late):
            control.step_time.note(size, late_s, beside=True)
        seconds = late * late_s if late else self.trip_s(deepest)
        verify_s = self.step_s(size + sum(depths.values()))
        control.step_time.note(size + sum(depths.values()), verify_s)
        gained = sum(self._verify(control, one, depth, late) for one, depth in depths.items())
        return gained + size * (1 + late), seconds + verify_s

    def _verify(self, control: DepthControl, one: Sequence, depth: int, late: int) -> int:
        """Tokens accepted of a proposal whose first ``late`` had come by plain decoding."""
        right = [self._random.random() < self.rate for _ in range(depth)]
        accepted = len([*itertools.takewhile(bool, right)])
        if depth:
            control.note(one, Guess([0] * depth), [*range(accepted)])
        return max(0, accepted - late)

    def best_fixed(self) -> float:
        """Tokens a second at the best of all depths, always waited for."""
        return max(self._fixed(depth) for depth in range(1, DEPTH + 1))

    def _fixed(self, depth: int) -> float:
        size = len(self.sequences)
        tokens = size * sum(self.rate**level for level in range(depth + 1))
        return tokens / (self.trip_s(depth) + self.step_s(size * (1 + depth)))


@pytest.mark.parametrize("rate", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("level_s", [0.0005, 0.004])
@pytest.mark.parametrize(("size", "token_s"), [(1, 0.0), (8, 0.0), (8, 0.001)])
def test_within_five_percent_of_the_best_fixed_depth(
    rate: float, level_s: float, size: int, token_s: float
) -> None:
    world = World(rate, level_s=level_s, size=size, token_s=token_s)
    assert world.speed(world.control()) >= 0.95 * max(world.best_fixed(), world.plain)


@pytest.mark.parametrize(
    "costs",
    [
        {"rate": 0.05},
        {"rate": 0.3, "way_s": 0.05},
        {"rate": 0.3, "token_s": 0.02, "size": 4},
        {"rate": 0.3, "level_s": 0.012, "beside": 1.2},
    ],
    ids=["never right", "far away", "no room in a step", "a hub on our memory"],
)
def test_nothing_is_lost_where_drafting_cannot_pay(costs: dict[str, float]) -> None:
    world = World(**costs)  # type: ignore[arg-type]
    assert world.speed(world.control()) >= 0.98 * world.plain


@pytest.mark.parametrize("size", [1, 4, 16, 64])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_e27_never_slower_than_no_speculation_whatever_the_load(rate: float, size: int) -> None:
    """A step of 20 ms and half a millisecond a token: 64 rows as plain ones take 52 ms."""
    world = World(rate, token_s=0.0005, size=size)
    assert world.speed(world.control(), rounds=300) >= 0.98 * world.plain


def test_depth_falls_with_the_rate_and_rises_again() -> None:
    world = World(0.95, level_s=0.003, token_s=0.001)
    control = world.control()
    asking = dict.fromkeys(world.sequences, DEPTH)
    depths = []
    for rate in (0.95, 0.3, 0.95):
        world.rate = rate
        world.speed(control)
        depths.append(control.plan(asking, 0, world.trip_s, 1.0).depth)
    assert min(depths[0], depths[2]) > depths[1]


def test_no_wait_is_longer_than_the_budget() -> None:
    control, asking = DepthControl(DEPTH, 0, line(0.02, 0.0)), {make_sequence(): DEPTH}
    assert control.plan(asking, 0, lambda _: 0.01, 0.02).wait
    late = control.plan(asking, 0, lambda _: 0.01, 0.005)
    assert late.depth
    assert not late.wait


def test_what_does_not_pay_is_tried_again_twice_in_a_row_without_waiting() -> None:
    world = World(0.0, token_s=0.01)
    control = world.control()
    world.speed(control)
    asking = dict.fromkeys(world.sequences, DEPTH)
    plans = [control.plan(asking, 0, world.trip_s, 1.0) for _ in range(3 * MOST_PROBE)]
    tried = [number for number, plan in enumerate(plans) if plan.depth]
    assert 4 <= len(tried) <= 6
    assert all(
        one in (tried[index - 1] + 1, tried[index - 1] + MOST_PROBE)
        for index, one in enumerate(tried)
        if index
    )
    assert not any(plan.wait for plan in plans)


def test_trees_where_a_row_more_costs_nothing_chains_where_it_does() -> None:
    shapes = []
    for token_s in (0.0, 0.01):
        control = DepthControl(4, 15, line(0.02, token_s))
        tree = Guess([*range(1, 16)], [-1, -1, 0, 1, *[-1] * 11], asked=4, allowed=15)
        sequence = make_sequence()
        for _ in range(100):
            for path in ([0, 2], [1, 3], [0], []):
                control.note(sequence, tree, path)
        shapes.append(control.plan({sequence: 4}, 0, lambda _: 0.002, 1.0).nodes)
    assert shapes == [15, 0]


def test_rows_of_a_tree_are_what_hubs_send_of_late() -> None:
    control, sequence = DepthControl(4, 15, FLAT), make_sequence()
    assert control.rows(15, 4) == 4
    for sent in (0, 0, 0, 6):
        tree = Guess([*range(sent)], [-1] * sent, asked=4, allowed=15)
        assert control.rows(15, 4) in (4, 0)
        control.note(sequence, tree, [])
    assert control.rows(15, 4) == pytest.approx(1.5)


def test_a_proposal_that_came_late_tells_of_what_was_said_meanwhile() -> None:
    """Two tokens were said, and the second was not the one it said: it will not be verified."""
    control, sequence = DepthControl(4, 15, FLAT), make_sequence()
    guess = Guess([5, 6, 7, 8], asked=4, allowed=15)
    for _ in range(200):
        control.late(sequence, guess, [5, 9])
    assert sequence.record is not None
    for nodes in control.shapes:
        first, second, third, _ = sequence.record.rates(nodes)
        assert first > 0.9
        assert second < 0.3
        assert third == second, "nothing is known of it"
    assert control.rows(15, 4) == 4, "whatever was told is cut, and no measure of trees"


def test_what_did_not_pay_is_not_reckoned_again_until_something_is_learned() -> None:
    trips: list[int] = []

    def trip(depth: int) -> float:
        trips.append(depth)
        return 1.0

    control, sequence = DepthControl(4, 0, FLAT), make_sequence()
    for _ in range(200):
        control.late(sequence, Guess([5, 6, 7, 8], asked=4), [9])
    control.plan({sequence: 4}, 0, trip, 1.0)
    asked = len(trips)
    control.plan({sequence: 4}, 0, trip, 1.0)
    assert len(trips) == asked + 1, "for the next probe"
    for change in (
        lambda: control.late(sequence, Guess([5], asked=4), [9]),
        lambda: control.plan({make_sequence(seq="other"): 4}, 0, trip, 1.0),
        lambda: control.plan({sequence: 4}, 1, trip, 1.0),
    ):
        change()
        trips.clear()
        control.plan({sequence: 4}, 0, trip, 1.0)
        assert len(trips) == asked


SIX_FREE = StepShape({1: 0.01, 6: 0.01, 7: 0.0101})


@pytest.mark.parametrize(("others", "free"), [(0, 5), (4, 1), (6, 0)])
def test_tokens_that_cost_nothing_have_no_price(others: int, free: int) -> None:
    """Six in the time of one, as many as others leave, then a tenth of a millisecond each."""
    control = DepthControl(4, 15, SIX_FREE)
    plan = control.plan({make_sequence(): 4}, others, lambda _: 0.0, 1.0)
    assert plan.prices == pytest.approx([0.0] * free + [plan.rate / 10_000] * (15 - free))


def test_of_several_sequences_each_takes_a_token_more() -> None:
    asking = {make_sequence(seq=name): 4 for name in "abc"}
    plan = DepthControl(4, 15, SIX_FREE).plan(asking, 0, lambda _: 0.0, 1.0)
    assert plan.prices[:2] == pytest.approx([0.0, plan.rate / 10_000])


def test_fixed_depth_waits_however_long_trips_seem() -> None:
    control, asking = FixedDepth(4, 15, FLAT), {make_sequence(): 4}
    assert control.plan(asking, 0, lambda _: 0.01, 0.02) == Plan(4, 15, wait=True)
    assert control.plan(asking, 0, lambda _: 0.03, 0.02) == Plan(4, 15, wait=True)
