"""Every moment of a step is charged to one part."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from starsd.process.parts import Parts, charged


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Loop:
    """Spends one second in each of its methods."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock

    @charged("python")
    def step(self, times: int) -> str:
        """Its words."""
        for _ in range(times):
            self.send()
        self._clock.now += 1
        return "done"

    @charged("transport")
    def send(self) -> None:
        self._clock.now += 1


def test_a_part_is_without_the_parts_within(clock: Clock) -> None:
    parts = Parts(clock=clock)
    with parts.python:
        clock.now += 1
        with parts.transport:
            clock.now += 2
            with parts.wait:
                clock.now += 4
            clock.now += 8
        with parts.transport:
            clock.now += 16
        clock.now += 32
    clock.now += 64
    assert parts.seconds() == {
        "forward": 0,
        "sampling": 0,
        "transport": 26,
        "wait": 4,
        "python": 33,
    }


def test_a_part_within_itself(clock: Clock) -> None:
    parts = Parts(clock=clock)
    with parts.transport, parts.transport:
        clock.now += 1
    assert parts.seconds()["transport"] == 1


def test_what_fails_is_charged_and_left(clock: Clock) -> None:
    loop = Loop(parts := Parts(clock=clock), clock)
    with pytest.raises(TypeError):
        loop.step(times="once")  # type: ignore[arg-type]
    clock.now += 2
    assert loop.step(times=0) == "done"
    assert parts.seconds()["python"] == 1


def test_methods_are_charged(clock: Clock) -> None:
    parts = Parts(clock=clock)
    loop = Loop(parts, clock)
    assert loop.step(times=3) == "done"
    assert (parts.seconds()["python"], parts.seconds()["transport"]) == (1, 3)
    assert (Loop.step.__name__, Loop.step.__doc__) == ("step", "Its words.")


def test_a_divided_forward(clock: Clock) -> None:
    """What ran before counts for nothing, and what the runner cannot place is Python."""
    inside = {"matrices": 100.0, "cache": 10.0}
    parts = Parts(lambda: dict(inside), clock)
    with parts.python:
        clock.now += 1
        with parts.forward:
            clock.now += 9
            inside["matrices"] += 5
            inside["cache"] += 2
    found = parts.seconds()
    assert (found["matrices"], found["cache"], found["python"]) == (5, 2, 3)
    assert "forward" not in found
    assert sum(found.values()) == 10


def test_exposed_as_a_counter(clock: Clock) -> None:
    parts = Parts(clock=clock)
    with parts.sampling:
        clock.now += 1.5
    registry = CollectorRegistry()
    registry.register(parts)
    text = generate_latest(registry).decode()
    assert 'starsd:step_part_seconds_total{part="sampling"} 1.5' in text
    assert "# TYPE starsd:step_part_seconds_total counter" in text
