"""Windows made up for the arithmetic's tests."""

from __future__ import annotations

from starsd.bench.profile_result import HUB, TARGET, Counters, Window

PARTS = {"matrices": 0.8, "attention": 0.06, "sampling": 0.02, "python": 0.12, "wait": 0.5}
COUNTED = Counters(steps=10, seconds=PARTS)
HUB_COUNTED = Counters(
    steps=20,
    sequences=30,
    seconds={"forward": 1.5, "sampling": 0.5, "wait": 0.0},
    idle_s=0.25,
)


def windows() -> list[Window]:
    return [
        Window(TARGET, 16, "greedy", COUNTED),
        Window(HUB, 16, "greedy", HUB_COUNTED),
        Window(TARGET, 1, "greedy", COUNTED),
        Window(TARGET, 1, "unfiltered", COUNTED),
    ]
