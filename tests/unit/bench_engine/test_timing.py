from __future__ import annotations

import time
from collections.abc import Callable

from starsd.bench.engine.timing import Key, Timer
from tests.unit.bench_engine.support import Clock, timer_of


def test_cases_take_turns_and_first_times_do_not_count() -> None:
    """repeats."""
    clock, order = Clock(), []
    spent = {"a": iter([50.0, 3.0, 1.0, 2.0]), "b": iter([50.0, 7.0, 9.0, 8.0])}

    def case(name: str) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            clock.now += next(spent[name])

        return run

    timer = timer_of(clock, repeats=3)
    found = timer.medians("s", {("a", "1"): case("a"), ("b",): case("b")})
    assert found == {("a", "1"): 2, ("b",): 8}
    assert order == ["a", "b"] * 4
    timer.medians("s", {("c",): lambda: None})
    assert timer.raw == {"s": {"a, 1": [3, 1, 2], "b": [7, 9, 8], "c": [0, 0, 0]}}


def test_one_thread_is_timed_by_its_own_clock() -> None:
    """Sleeping takes no processor time."""
    case: dict[Key, Callable[[], object]] = {("sleep",): lambda: time.sleep(0.05)}
    assert Timer(1, 1).medians("s", case)["sleep",] < 0.02
    assert Timer(2, 1).medians("s", case)["sleep",] >= 0.05
    assert (Timer(1, 1).kind, Timer(2, 1).kind) == ("processor", "real")
