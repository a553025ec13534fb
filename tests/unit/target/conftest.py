"""A star of one hub that has welcomed it, for tests that speak to it message by message."""

from __future__ import annotations

import pytest

from services.target.star import Star
from tests.unit.target.recording import STEEP, Clock, RecordingBus, make_star, welcome


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


@pytest.fixture
def star(bus: RecordingBus, clock: Clock) -> Star:
    star = make_star(bus, clock)
    welcome(star, bus)
    return star


@pytest.fixture
def steep(bus: RecordingBus, clock: Clock) -> Star:
    """A token more takes a step of 10 ms a millisecond."""
    star = make_star(bus, clock, STEEP)
    welcome(star, bus)
    return star
