from __future__ import annotations

import pytest

from starsd.bus.clock import ServerClock
from tests.unit.bus.fake_server import Clock

SERVER_S = 1_700_000_000.0


HALF_MS_S = 0.0005


def entry(seconds: float) -> str:
    """Added in the middle of a millisecond, as is assumed of all."""
    return f"{int((SERVER_S + seconds) * 1000)}-0"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> ServerClock:
    one = ServerClock(clock)
    one.observe(SERVER_S, clock.now)
    return one


def test_no_age_before_the_first_reading(clock: Clock) -> None:
    assert ServerClock(clock).age_s(entry(-50)) == 0


def test_age_is_by_server_clock_and_goes_on_with_ours(server: ServerClock, clock: Clock) -> None:
    assert server.age_s(entry(-2)) == pytest.approx(2 - HALF_MS_S)
    clock.now += 3
    assert server.age_s(entry(-2)) == pytest.approx(5 - HALF_MS_S)


def test_age_is_never_negative(server: ServerClock) -> None:
    assert server.age_s(entry(10)) == 0


def test_a_late_reading_counts_from_when_it_was_asked(server: ServerClock, clock: Clock) -> None:
    asked = clock.now + 1
    clock.now += 30
    server.observe(SERVER_S + 1, asked)
    assert server.age_s(entry(0)) == pytest.approx(30 - HALF_MS_S)


def test_drift_is_followed(server: ServerClock, clock: Clock) -> None:
    clock.now += 1
    server.observe(SERVER_S + 1.5, clock.now)
    assert server.age_s(entry(0)) == pytest.approx(1.5 - HALF_MS_S)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_jump_resets_the_age_of_what_was_there(
    jump: float, server: ServerClock, clock: Clock
) -> None:
    clock.now += 1
    server.observe(SERVER_S + 1 + jump, clock.now)
    assert server.age_s(entry(0)) == 0
    clock.now += 2
    assert server.age_s(entry(min(0, jump))) == pytest.approx(2, abs=HALF_MS_S)
    assert server.age_s(entry(jump + 2)) == pytest.approx(1, abs=HALF_MS_S)
