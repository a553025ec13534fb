"""Who gets how much of a hub, and who waits, where targets differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from starsd.bench.scale.curves import Curves
from starsd.bench.scale.emulated import FLOODED, QUIET
from starsd.bench.scale.point import Measured
from starsd.bench.scale.result import Share
from starsd.plan.star import Mode

P95 = 0.95


def jain(values: Sequence[float]) -> float:
    """1 if all are equal, 1/n if one has everything (Jain, Chiu, Hawe 1984)."""
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def of_equals(curves: Curves) -> float | None:
    """Of equal targets beside a flooding one: rounds a second over the lesser of what one has
    alone and its fair share of all."""
    flooded, alone = curves.noted(FLOODED), curves.get(Mode.BATCHED, 1)
    if flooded is None or alone is None:
        return None
    rates = [_rounds_per_s(flooded, target) for target in range(flooded.point.targets)]
    fair = min(_rounds_per_s(alone, 0), sum(rates) / len(rates))
    return jain([rate / fair for rate in rates[:QUIET]])


def _rounds_per_s(one: Measured, target: int) -> float:
    gaps = one.gaps_ms[target]
    return 1000 * one.point.sequences[target] / statistics.fmean(gaps) if gaps else 0.0


def extra_steps(curves: Curves) -> float | None:
    """p95 of a quiet target's round beside the flood, less that of the same targets without it, in
    steps of the hub beside the flood."""
    flooded, quiet = curves.noted(FLOODED), curves.get(Mode.BATCHED, QUIET)
    if flooded is None or quiet is None or not flooded.hub.get("steps"):
        return None
    beside = [gap for target in flooded.gaps_ms[:QUIET] for gap in target]
    without = [gap for target in quiet.gaps_ms for gap in target]
    step_ms = 1000 * flooded.hub["busy_s"] / flooded.hub["steps"]
    return (p95(beside) - p95(without)) / step_ms


def p95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(P95 * len(ordered)))] if ordered else 0.0


def shares(one: Measured) -> Iterator[Share]:
    for target, (tokens, gaps) in enumerate(zip(one.tokens_per_s, one.gaps_ms, strict=True)):
        yield Share(
            point=one.point.key,
            target=target,
            sequences=one.point.sequences[target],
            rounds_per_s=_rounds_per_s(one, target),
            tokens_per_s=tokens,
            p95_round_ms=p95(gaps),
        )
