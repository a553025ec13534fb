"""The simulated tier: each emulated point once more as discrete events and as a formula, fed with
what the star of one target showed of steps and messages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starsd.bench.scale.load import STRIDE
from starsd.bench.scale.models import DEEPEST
from starsd.bench.scale.point import Point
from starsd.bench.scale.world import World
from starsd.plan.acceptance import Walked, recorded
from starsd.plan.analytic import figures
from starsd.plan.costs import Costs
from starsd.plan.simulation import Simulated, simulate
from starsd.plan.star import Figures, Mode, Star

HORIZON_S = 45.0
WARM_UP_S = 3.0


@dataclass(frozen=True)
class Predicted:
    """``round_s`` is what is compared: tokens follow from it by acceptance, which is the recorded
    one in all tiers."""

    point: Point
    simulated: Simulated
    formula: Figures


def predict(point: Point, recording: World, costs: Costs) -> Predicted:
    """``costs`` as observed. All targets of the point are alike."""
    star = Star(point.mode, point.targets, point.depth, max(point.sequences))
    luck = random.Random(point.key)

    def verify_s(rows: int) -> float:
        return costs.verify(rows) * luck.choice(recording.verify_factors)

    simulated = simulate(
        star,
        costs,
        lambda number: Walked(recording.ranks, STRIDE * number),
        HORIZON_S,
        WARM_UP_S,
        verify_s,
    )
    acceptance = recorded(recording.ranks, DEEPEST)
    return Predicted(point, simulated, figures(star, _typical(costs, recording), acceptance))


def colocated(targets: int, depth: int, recording: World, costs: Costs) -> Figures:
    """What each target would do with the draft beside it on its own accelerator: no messages."""
    own = Costs(costs.draft_first, costs.draft_next, _typical(costs, recording).verify)
    acceptance = recorded(recording.ranks, DEEPEST)
    return figures(Star(Mode.COLOCATED, targets, depth), own, acceptance)


def predictable(points: Sequence[Point]) -> list[Point]:
    """Those of equal targets."""
    return [point for point in points if not point.note and len(set(point.sequences)) == 1]


def _typical(costs: Costs, recording: World) -> Costs:
    """With the mean of its steps, not the median."""
    factors = recording.verify_factors
    return replace(costs, verify=costs.verify.times(sum(factors) / len(factors)))
