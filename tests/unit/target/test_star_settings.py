"""What the target's settings do to its conversation with hubs."""

from __future__ import annotations

from typing import Any

import pytest

from services.target.guess import Guess
from services.target.sequence import Sequence
from services.target.star import Star
from tests.unit.target.recording import (
    STEEP,
    Clock,
    RecordingBus,
    make_reply,
    make_sequence,
    make_star,
    welcome,
)


class Talk:
    """A target and a welcomed hub with one sequence past prefill."""

    def __init__(self, **settings: Any) -> None:
        self.bus, self.clock = RecordingBus(), Clock()
        self.star: Star = make_star(self.bus, self.clock, **settings)
        welcome(self.star, self.bus)
        self.sequence: Sequence = make_sequence()
        self.star.admit(self.sequence)
        first = self.bus.jobs()[-1]
        self.bus.arrived.append(make_reply(first, [], have=self.sequence.tokens))
        self.star.receive()
        self.sequence.accept([5], Guess([]))

    def ask(self) -> int:
        """Jobs that leave when proposals are asked for."""
        before = len(self.bus.jobs())
        self.star.request([self.sequence])
        return len(self.bus.jobs()) - before

    def late_step(self) -> None:
        """Ask, get no reply, and go on without."""
        self.ask()
        self.star.step_over([self.sequence])
        self.sequence.accept([6], Guess([]))


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_draft_depth(depth: int) -> None:
    talk = Talk(draft_depth=depth)
    assert talk.ask() == 1
    assert talk.bus.jobs()[-1].depth == depth


@pytest.mark.parametrize(("nodes", "asked"), [(0, 4), (4, 4), (5, 5), (15, 15)])
def test_draft_nodes(nodes: int, asked: int) -> None:
    """Chains are asked for by a number of nodes that is no more than the depth."""
    talk = Talk(draft_nodes=nodes, draft_depth=4)
    talk.ask()
    assert talk.bus.jobs()[-1].max_nodes == asked
    tree = make_reply(talk.bus.jobs()[-1], [6, 7], have=talk.sequence.tokens, parents=[-1, -1])
    talk.bus.arrived.append(tree)
    talk.star.receive()
    assert bool(talk.sequence.proposal) == (nodes > 4)


def test_depth_zero_bothers_no_hub() -> None:
    """Not even with the prompt: it would take a slot and be computed for nothing."""
    bus = RecordingBus()
    star, sequence = make_star(bus, Clock(), draft_depth=0), make_sequence()
    welcome(star, bus)
    star.admit(sequence)
    sequence.accept([5], Guess([]))
    star.request([sequence])
    assert bus.jobs() == []


@pytest.mark.parametrize(("control", "depth"), [("auto", 1), ("fixed", 4)])
def test_depth_control(control: str, depth: int) -> None:
    """Steps whose tokens are dear, and guesses that are wrong from the second on."""
    talk = Talk(shape=STEEP, depth_control=control, draft_depth=4)
    for _ in range(50):
        talk.star.verified(talk.sequence, Guess([6, 7, 8, 9], asked=4, allowed=15), [0])
    talk.ask()
    assert talk.bus.jobs()[-1].depth == depth


@pytest.mark.parametrize("budget", [0.5, 4.0])
def test_wait_budget(budget: float) -> None:
    talk = Talk(wait_budget=budget)
    talk.ask()
    assert talk.star.due_until(talk.sequence) == pytest.approx(talk.clock.now + budget * 0.01)


@pytest.mark.parametrize("misses", [1, 5])
def test_breaker_misses(misses: int) -> None:
    talk = Talk(breaker_misses=misses)
    for _ in range(misses - 1):
        talk.late_step()
    assert talk.star.breakers_open == 0
    talk.late_step()
    assert talk.star.breakers_open == 1


@pytest.mark.parametrize("interval", [0.2, 3.0])
def test_probe_interval_s(interval: float) -> None:
    talk = Talk(breaker_misses=1, probe_interval_s=interval)
    talk.late_step()
    assert talk.ask() == 1  # a probe
    talk.sequence.accept([7], Guess([]))
    talk.clock.now += interval - 0.01
    assert talk.ask() == 0
    talk.clock.now += 0.02
    assert talk.ask() == 1
