"""From raw measurements to the result: ratios, bars and tables' rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from starsd.bench.scale import fairness
from starsd.bench.scale.curves import Curves, Found
from starsd.bench.scale.emulated import AUTO
from starsd.bench.scale.models import DEEPEST
from starsd.bench.scale.point import Measured
from starsd.bench.scale.real import AHEAD, DELAYS_MS, PLAIN, STAR, TWO_CORES, WAITING, Leg, Real
from starsd.bench.scale.result import Bar, Other, RealRow, Result, Row
from starsd.bench.scale.simulated import Predicted
from starsd.plan.star import Figures, Mode

SATURATED = 4
"""Times N_full: where batching is compared with one job at a time."""
BUSY = 0.95
"""A hub is full from here on."""


def summarise(found: Found, settings: dict[str, Any], machine: dict[str, Any]) -> Result:
    curves = Curves(found)
    values = {**_emulated(found, curves), **_real(found)}
    values["bytes_per_round"] = {**_bytes(curves), **values.get("bytes_per_round", {})}
    return Result(
        **values,
        s_over_v=found.s_over_v,
        full_predicted=found.full_predicted,
        real_error=found.real_error,
        mismatched=sum(one.mismatched for one in found.measured),
        bars=list(_bars(values, found)),
        rows=[_row(one, curves, found.predicted) for one in found.measured],
        others=list(_others(found, curves)),
        shares=[
            share for one in found.measured if _is_uneven(one) for share in fairness.shares(one)
        ],
        gaps=list(found.gaps),
        costs_us=_costs_us(found, curves),
        settings=settings,
        machine=machine,
    )


# -- the emulated tier ---------------------------------------------------------------------------


def _emulated(found: Found, curves: Curves) -> dict[str, Any]:
    return {
        "unforced_idle": _most(one.unforced for one in found.measured if one.hub),
        "fifo_idle_saturated": _fifo_idle(found, curves),
        "batched_over_fifo_saturated": _over_fifo(found, curves),
        "runahead_cost_saturated": _ahead_cost(curves),
        "jain": fairness.of_equals(curves),
        "quiet_extra_steps": fairness.extra_steps(curves),
        "depth_regret": _regret(curves),
        "model_error": _most(abs(ratio - 1) for ratio in _ratios(found, "simulated")),
        "formula_error": _most(abs(ratio - 1) for ratio in _ratios(found, "formula")),
        "full_measured": _full(curves),
    }


def _most(values: Iterable[float]) -> float | None:
    return max(values, default=None)


def _fifo_idle(found: Found, curves: Curves) -> float | None:
    """The most, from twice N_full on."""
    if found.full_predicted is None:
        return None
    counts = [n for n in curves.counts(Mode.FIFO) if n >= 2 * found.full_predicted]
    points = (curves.get(Mode.FIFO, count) for count in counts)
    return _most(one.idle for one in points if one is not None)


def _over_fifo(found: Found, curves: Curves) -> float | None:
    """At the least number of targets that saturates, if there is one."""
    if found.full_predicted is None:
        return None
    for count in curves.counts(Mode.FIFO):
        fifo, batched = curves.get(Mode.FIFO, count), curves.get(Mode.BATCHED, count)
        if count >= SATURATED * found.full_predicted and fifo and batched:
            return curves.rate(batched) / curves.rate(fifo)
    return None


def _ahead_cost(curves: Curves) -> float | None:
    """What run-ahead takes of the throughput of most targets."""
    count = max(curves.counts(Mode.RUN_AHEAD), default=0)
    ahead, batched = curves.get(Mode.RUN_AHEAD, count), curves.get(Mode.BATCHED, count)
    return 1 - curves.rate(ahead) / curves.rate(batched) if ahead and batched else None


def _full(curves: Curves) -> int | None:
    """The least number of targets that keeps a one-at-a-time hub busy."""
    for count in curves.counts(Mode.FIFO):
        one = curves.get(Mode.FIFO, count)
        if one is not None and one.busy >= BUSY:
            return count
    return None


def _regret(curves: Curves) -> float | None:
    """Of adaptive depth, the most."""
    counts = curves.counts(Mode.PLAIN)
    points = (curves.get(Mode.BATCHED, count, DEEPEST, AUTO) for count in counts)
    adaptive = [one for one in points if one is not None and one.spans]
    return _most(1 - curves.own_rate(one) / curves.best_fixed(one) for one in adaptive)


def _ratios(found: Found, tier: str) -> Iterator[float]:
    """Predicted over measured time of a round."""
    measured = {one.point: one.round_s for one in found.measured}
    for one in found.predicted:
        figures: Figures = getattr(one, tier)
        if max(one.point.sequences) == 1 and measured.get(one.point):
            yield figures.round_s / measured[one.point]


# -- the real tier -------------------------------------------------------------------------------


def _real(found: Found) -> dict[str, Any]:
    real = found.real
    star, waiting = (real.leg(STAR), real.leg(WAITING)) if real else (None, None)
    if real is None or star is None or waiting is None:
        nothing = ("runahead_wait_removed", "runahead_hits", "star_over_plain")
        return {**dict.fromkeys((*nothing, "star_over_plain_two_cores", "s_over_v_real"))}
    return {
        "runahead_wait_removed": _wait_removed(real),
        "runahead_hits": _hits(real),
        "star_over_plain": _over(star, real.leg(PLAIN)),
        "star_over_plain_two_cores": _over(star, real.leg(TWO_CORES)),
        "s_over_v_real": waiting.part_s("draft") / waiting.part_s("verify"),
        "real": [_real_row(one) for one in real.legs],
        "bytes_per_round": {"real": real.bytes_per_round},
        "memory_mb": real.memory_mb,
    }


def _costs_us(found: Found, curves: Curves) -> dict[str, float]:
    """Of a round of the emulated star of one target, besides the models."""
    alone = curves.get(Mode.BATCHED, 1)
    if alone is None:
        return {}
    costs = found.costs
    parts = {
        "way to the hub and back": 1e6 * costs.network_s,
        "hub, besides its model": 1e6 * costs.hub_job_s,
        "target, besides its model": 1e6 * costs.target_step_s,
    }
    return parts | ({"redis, processor": found.real.redis_us_per_round} if found.real else {})


def _bytes(curves: Curves) -> dict[str, float]:
    """Over Redis, both directions, with tokens alone: what plain targets cause (the registry)
    taken off, where there are many rounds."""
    count = max(curves.counts(Mode.BATCHED), default=0)
    star, plain = curves.get(Mode.BATCHED, count), curves.get(Mode.PLAIN, count)
    if star is None or plain is None or not star.target.get("rounds"):
        return {}
    rounds_per_s = star.target["rounds"] / star.seconds
    extra = _bytes_per_s(star) - _bytes_per_s(plain)
    return {"emulated": max(0.0, extra) / rounds_per_s}


def _bytes_per_s(one: Measured) -> float:
    both = one.server["total_net_input_bytes"] + one.server["total_net_output_bytes"]
    return both / one.seconds


def _over(star: Leg, other: Leg | None) -> float | None:
    return star.tokens_per_s / other.tokens_per_s if other else None


def _wait_removed(real: Real) -> float | None:
    """The least share of waiting that run-ahead takes away, over all delays."""
    pairs = [(real.leg(WAITING, delay), real.leg(AHEAD, delay)) for delay in DELAYS_MS]
    removed = [1 - ahead.wait_ms / one.wait_ms for one, ahead in pairs if one and ahead]
    return min(removed, default=None)


def _hits(real: Real) -> float | None:
    """The least share of rounds that needed no asking, over all delays."""
    found = (real.leg(AHEAD, delay) for delay in DELAYS_MS)
    return min((one.foreseen for one in found if one), default=None)


def _real_row(one: Leg) -> RealRow:
    parts = {f"{part}_ms": 1000 * one.part_s(part) for part in ("draft", "queue", "network")}
    return RealRow(
        variant=one.variant,
        delay_ms=one.delay_ms,
        tokens_per_s=one.tokens_per_s,
        foreseen=one.foreseen,
        wait_ms=one.wait_ms,
        verify_ms=1000 * one.part_s("verify"),
        **parts,
    )


# -- all together --------------------------------------------------------------------------------

BARS: Mapping[str, tuple[str, float, bool]] = {
    "unforced_idle": ("emulated", 0.03, False),
    "fifo_idle_saturated": ("emulated", 0.05, False),
    "batched_over_fifo_saturated": ("emulated", 2.5, True),
    "jain": ("emulated", 0.95, True),
    "quiet_extra_steps": ("emulated", 2.0, False),
    "depth_regret": ("emulated", 0.05, False),
    "runahead_cost_saturated": ("emulated", 0.02, False),
    "model_error": ("emulated", 0.10, False),
    "formula_error": ("emulated", 0.10, False),
    "real_error": ("real", 0.10, False),
    "runahead_wait_removed": ("real", 0.5, True),
    "star_over_plain": ("real", 2.0, True),
    "star_over_plain_two_cores": ("real", 1.3, True),
}


def _bars(values: Mapping[str, Any], found: Found) -> Iterator[Bar]:
    all_values = {**values, "real_error": found.real_error}
    ratios = {"emulated": found.s_over_v, "real": values["s_over_v_real"]}
    for name, (tier, limit, at_least) in BARS.items():
        yield Bar(name, tier, all_values[name], limit, at_least, ratios[tier])


def _is_uneven(one: Measured) -> bool:
    return one.point.note not in ("", AUTO)


def _row(one: Measured, curves: Curves, predicted: Sequence[Predicted]) -> Row:
    point = one.point
    mine = next((other for other in predicted if other.point == point), None)
    return Row(
        mode=point.mode,
        targets=point.targets,
        depth=point.depth,
        note=point.note or (f"{most} sequences" if (most := max(point.sequences)) > 1 else ""),
        tokens_per_s=one.throughput,
        expected=curves.rate(one),
        round_ms=1000 * one.round_s,
        wait_ms=one.wait_ms,
        busy=one.busy,
        unforced=one.unforced,
        simulated=mine.simulated.round_s / one.round_s if mine and one.round_s else None,
        formula=mine.formula.round_s / one.round_s if mine and one.round_s else None,
    )


def _others(found: Found, curves: Curves) -> Iterator[Other]:
    for count, colocated in sorted(found.colocated.items()):
        plain = curves.get(Mode.PLAIN, count)
        if plain is not None:
            rate = curves.rate(plain)
            yield Other(count, rate, rate * (count + 1) / count, colocated.throughput)
