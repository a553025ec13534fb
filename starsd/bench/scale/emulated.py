"""The emulated tier: which points, in which worlds, and the services that play them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from starsd.bench.scale import world
from starsd.bench.scale.models import DEEPEST
from starsd.bench.scale.point import Measured, Point, measure
from starsd.bench.scale.setup import DEPTH, Setup
from starsd.bench.scale.star import FLOOD, EmulatedStar
from starsd.bench.scale.store import Store
from starsd.bench.scale.world import World
from starsd.check.lab import Lab
from starsd.plan.costs import Costs
from starsd.plan.star import Mode

QUIET = 4
"""Equal targets beside a flooding one."""
BASE, FAST, SLOW, OTHER = "base", "fast", "slow", "other"
AUTO, MIXED, MODELS, FLOODED = "auto", "mixed", "models", "flood"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Scene:
    """Targets' worlds by name, the world of their hub, and the points they are asked for."""

    targets: tuple[str, ...]
    hub: str
    points: tuple[Point, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the targets."""


def stretched(recording: World, setup: Setup) -> World:
    """The recorded world, slowed down as the setup says."""
    costs = recording.costs.even(DEPTH)
    slower = setup.verify_ms / 1000 / costs.verify(1 + DEPTH)
    return replace(recording, costs=_full_at(costs.slower(slower), setup.full_at))


def _full_at(costs: Costs, targets: int) -> Costs:
    """With a draft whose time for a job makes 1 + T_return / S a little less than that. What
    messages add to it is left room for."""
    if not targets:
        return costs
    wanted_s = costs.return_s(DEPTH) / max(0.5, targets - 1.1)
    factor = wanted_s / costs.service_s(DEPTH)
    return replace(
        costs,
        draft_first=costs.draft_first.times(factor),
        draft_next=costs.draft_next.times(factor),
    )


def worlds(base: World, other: World | None) -> dict[str, World]:
    """Targets of other speeds and, where it was recorded, another model with the same tokenizer.
    It and the first one answer different prompts, so that their hub can tell them apart."""
    found = {
        BASE: base,
        FAST: replace(base, costs=_verifying(base.costs, 0.5)),
        SLOW: replace(base, costs=_verifying(base.costs, 2.0)),
    }
    if other is not None:
        first = replace(base, texts=base.texts[::2])
        second = replace(other, texts=other.texts[1::2], costs=base.costs)
        both = replace(first, texts=(*first.texts, *second.texts))
        found |= {MODELS: both, f"{MODELS}-{BASE}": first, f"{MODELS}-{OTHER}": second}
    return found


def _verifying(costs: Costs, factor: float) -> Costs:
    return replace(costs, verify=costs.verify.times(factor))


def scenes(setup: Setup) -> Iterator[Scene]:
    """All of the tier, the curves first."""
    most = max(*setup.targets, QUIET + 1)
    yield Scene((BASE,) * most, BASE, tuple(dict.fromkeys(equal_points(setup))))
    if Mode.BATCHED in setup.modes:
        adaptive = {"depth_control": "auto"}
        auto = tuple(Point(Mode.BATCHED, (1,) * n, DEEPEST, AUTO) for n in setup.depth_targets)
        yield Scene((BASE,) * max(setup.depth_targets, default=0), BASE, auto, adaptive)
    if not setup.quick:
        mixed = tuple(Point(mode, (1,) * 4, DEPTH, MIXED) for mode in stars(setup))
        yield Scene((FAST, FAST, SLOW, SLOW), BASE, mixed)
        models = (f"{MODELS}-{BASE}", f"{MODELS}-{OTHER}") * 2
        yield Scene(models, MODELS, (Point(Mode.BATCHED, (1,) * 4, DEPTH, MODELS),))


def stars(setup: Setup) -> tuple[Mode, ...]:
    return tuple(mode for mode in setup.modes if mode is not Mode.PLAIN)


def equal_points(setup: Setup) -> Iterator[Point]:
    """Of targets that are all alike."""
    for mode in setup.modes:
        for count in setup.targets:
            yield Point(mode, (1,) * count, DEPTH if mode is not Mode.PLAIN else 0)
    if Mode.BATCHED in setup.modes:
        yield Point(Mode.BATCHED, (1,), DEPTH)  # what messages cost, and a target alone
        yield Point(Mode.BATCHED, (1,) * QUIET, DEPTH)
        yield Point(Mode.BATCHED, (FLOOD,), DEPTH)
        yield flooded()
        for depth in setup.depths:
            for count in setup.depth_targets:
                yield Point(Mode.BATCHED, (1,) * count, depth)


def flooded() -> Point:
    """Equal targets of one sequence beside one of many."""
    return Point(Mode.BATCHED, (1,) * QUIET + (FLOOD,), DEPTH, FLOODED)


def run(setup: Setup, all_worlds: Mapping[str, World], store: Store, say: Say) -> list[Measured]:
    """All points, those that the store has from there.

    Raises:
        UnavailableError, DeadlineError: a service that did not come up.
        RemoteError, TransportError: an answer that failed.
    """
    found: list[Measured] = []
    for scene in scenes(setup):
        missing = [point for point in scene.points if not store.has(point.key)]
        if missing:
            _play(setup, scene, missing, all_worlds, store, say)
        found += (store.load(point.key, Measured) for point in scene.points)
    return found


def _play(
    setup: Setup,
    scene: Scene,
    points: Sequence[Point],
    all_worlds: Mapping[str, World],
    store: Store,
    say: Say,
) -> None:
    files = {name: store.folder / f"world-{name}" for name in {*scene.targets, scene.hub}}
    for name, file in files.items():
        world.write(all_worlds[name], file)
    with Lab(log_level="warning") as lab:
        star = EmulatedStar(lab)
        say(f"{len(scene.targets)} targets start")
        services = star.add_targets([files[name] for name in scene.targets], **scene.settings)
        theirs = [all_worlds[name] for name in scene.targets]
        for (mode, depth), group in groupby(sorted(points, key=_hub_of), key=_hub_of):
            star.use_hub(files[scene.hub], mode, depth)
            for point in group:
                say(point.key)
                some = slice(point.targets)
                made = measure(star, services[some], theirs[some], point, setup.seconds)
                store.save(point.key, made)


def _hub_of(point: Point) -> tuple[Mode, int]:
    """Points that agree in this can share one."""
    return point.mode, point.depth
