"""Answers and counters made up for the arithmetic's tests."""

from __future__ import annotations

from typing import Any

from starsd.bench.speed_result import Counts, Timed
from starsd.check.client import Answer
from starsd.protocol.frames import FinishReason, RequestStats

MACHINE: dict[str, Any] = {
    "cpu": "Test CPU",
    "cores_used": (0, 1),
    "siblings": (),
    "load_before": 0.1,
    "load_after": 1.2,
}
COUNTS = Counts(
    rounds=4,
    proposed={"0": 4, "1": 4, "2": 2},
    accepted={"0": 3, "1": 1},
    seconds={"queue": 0.004, "draft": 0.04, "network": 0.008, "verify": 0.1},
)


def timed(
    variant: str,
    tokens_per_s: float = 10.0,
    *,
    prompt: str = "writing-1",
    category: str = "writing",
    repeat: int = 0,
    ids: tuple[int, ...] = (1, 2, 3),
    stats: RequestStats | None = None,
    ttft_s: float = 0.1,
) -> Timed:
    """An answer of 20 decoded tokens at that speed; at speed 0 all came at once."""
    decoded = 20 if tokens_per_s else 0
    return Timed(
        answer=Answer(
            ids=list(ids), text="t", reason=FinishReason.STOP, stats=stats or RequestStats()
        ),
        ttft_s=ttft_s,
        decode_s=decoded / tokens_per_s if decoded else 0.0,
        decoded=decoded,
        prompt=prompt,
        category=category,
        variant=variant,
        repeat=repeat,
    )


def trio(plain: float, colocated: float, star: float, **more: Any) -> list[Timed]:
    """One prompt's answers at these speeds; ``stats`` are the star's."""
    stats = more.pop("stats", RequestStats(rounds=4, proposed=10, accepted=4, fallbacks=1))
    return [
        timed("star", star, stats=stats, **more),
        timed("plain", plain, **more),
        timed("colocated", colocated, **more),
    ]
