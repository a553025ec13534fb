"""What a planner must know of a machine: steps of draft and target, a round's way, acceptance."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starsd.bench.scale import point, ranks, timing, world
from starsd.bench.scale.models import DEEPEST, Models, Source, loaded
from starsd.bench.scale.setup import DEPTH
from starsd.bench.scale.star import EmulatedStar
from starsd.bench.scale.world import World
from starsd.check.lab import Lab
from starsd.plan.acceptance import Acceptance, recorded
from starsd.plan.costs import Costs, straight
from starsd.plan.star import Mode

REPEATS = 20
"""Of each timing."""
STEP_S = 0.02
"""Of a target that does nothing but show how long messages take."""
SECONDS = 4.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Calibration:
    """``rank`` of a token as in ``world.Text``; ``acceptance`` is that of chains."""

    costs: Costs
    acceptance: Acceptance
    settings: dict[str, Any]
    machine: dict[str, Any]


def record(source: Source, say: Say, repeats: int = REPEATS) -> World:
    """The target's answers, what the draft knew of them, and what their steps take, at rest.

    Raises as ``loaded`` does.
    """
    say("loading target and draft")
    with loaded(source) as models:
        say(f"{len(models.questions)} answers, and what the draft knows of them")
        texts = ranks.texts(models)
        say("times of steps")
        return _world(models, texts, timing.steps(models, repeats))


def _world(models: Models, texts: tuple[world.Text, ...], steps: timing.Steps) -> World:
    return World(
        texts=texts,
        eos=models.eos,
        vocab_size=models.target.vocab_size,
        vocabulary=models.vocabulary,
        revision=models.target.revision,
        costs=Costs(steps.draft_first, steps.draft_next, steps.verify),
        verify_factors=steps.verify_factors,
    )


def acceptance(recording: World) -> Acceptance:
    return recorded(recording.ranks, DEEPEST)


def with_messages(recording: World, say: Say) -> World:
    """Its costs with what a round takes besides drafting and verifying, measured by a star whose
    models only sleep. Raises what ``point.measure`` does."""
    say("messages")
    quick = replace(
        recording,
        costs=Costs(straight(STEP_S / 10, 0), straight(STEP_S / 10, 0), straight(STEP_S, 0)),
        verify_factors=(1.0,),
    )
    with (
        tempfile.TemporaryDirectory(prefix="starsd-calibrate-") as folder,
        Lab(log_level="warning") as lab,
    ):
        file = Path(folder) / "world.json"
        world.write(quick, file)
        star = EmulatedStar(lab)
        targets = star.add_targets([file])
        star.use_hub(file, Mode.BATCHED, DEPTH)
        one = point.Point(Mode.BATCHED, (1,), DEPTH)
        found = observed(quick, point.measure(star, targets, [quick], one, SECONDS))
    costs = replace(
        recording.costs,
        network_s=found.network_s,
        hub_job_s=found.hub_job_s,
        target_step_s=found.target_step_s,
    )
    return replace(recording, costs=costs)


def observed(recording: World, measured: point.Measured) -> Costs:
    """A world's costs as a star of one target had them: its steps take a little longer than they
    should, and there are messages and answers' beginnings besides."""
    costs, hub, target = recording.costs, measured.hub, measured.target
    depth = measured.point.depth
    late_s = hub["busy_s"] / max(1.0, hub["steps"]) - costs.draft_next(1)
    drafting = replace(
        costs,
        draft_first=costs.draft_first.plus(late_s),
        draft_next=costs.draft_next.plus(late_s),
    )
    parts = ("draft", "queue", "network")
    trip_s = sum(target.get(f"{part}_s", 0.0) for part in parts) / max(1.0, target["rounds"])
    besides_s = max(0.0, trip_s - drafting.service_s(depth))
    # Some of what the hub does for a job it does when the reply has left: not all is of the trip.
    hub_job_s = min(hub["other_s"] / max(1.0, hub["served"]), besides_s / 2)
    typical = sum(recording.verify_factors) / len(recording.verify_factors)
    step_s = typical * costs.verify(1 + depth)
    return replace(
        drafting,
        hub_job_s=hub_job_s,
        network_s=besides_s - hub_job_s,
        target_step_s=max(0.0, measured.round_s - trip_s - step_s),
        request_s=max(0.0, measured.between_s - typical * costs.verify(1)),
    )
