"""From a setup to a result, by way of a folder that keeps everything measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from starsd.bench.machine import allowed_cores, describe, load_average
from starsd.bench.scale import emulated, gaps, real, simulated
from starsd.bench.scale.calibration import acceptance, observed, record
from starsd.bench.scale.curves import Found
from starsd.bench.scale.gaps import Gaps
from starsd.bench.scale.models import loaded
from starsd.bench.scale.point import Measured, Point
from starsd.bench.scale.real import WAITING, Real
from starsd.bench.scale.result import Result
from starsd.bench.scale.setup import DEPTH, EMULATED, REAL, SIMULATED, Setup
from starsd.bench.scale.store import Store
from starsd.bench.scale.summary import summarise
from starsd.bench.scale.world import World
from starsd.plan.acceptance import Drawn, constant
from starsd.plan.analytic import full_at
from starsd.plan.costs import Costs, straight
from starsd.plan.simulation import simulate
from starsd.plan.star import Mode, Star

OTHER_QUANTIZE = "int4"
"""Of the second model that one hub serves: other weights, another text, the same tokenizer."""

Say = Callable[[str], None]


def measure(setup: Setup, folder: Path, say: Say) -> Result:
    """What ``folder`` has of it is not measured again.

    Raises:
        ConfigError: a bad setting, a folder of another setup, or models that do not load.
        UnavailableError, DeadlineError: a service that did not come up.
        RemoteError, TransportError: an answer that failed.
    """
    store = Store(folder, setup)
    machine, load_before = describe(allowed_cores()), load_average()
    found = Run(setup, store, say).found()
    facts = {**asdict(machine), "load_before": load_before, "load_after": load_average()}
    return summarise(found, asdict(setup), facts)


class Run:
    """One after the other: the recording, the emulated star, its simulation, the real one."""

    def __init__(self, setup: Setup, store: Store, say: Say) -> None:
        self._setup, self._store, self._say = setup, store, say
        source = setup.source
        self.recording = store.once("recording", World, lambda: record(source, say))
        self.base = emulated.stretched(self.recording, setup)

    def found(self) -> Found:
        tiers = self._setup.tiers
        measured = self._emulated() if EMULATED in tiers else []
        costs = self._costs(measured)
        points = [one.point for one in measured] if SIMULATED in tiers else []
        seen = self._real() if REAL in tiers else None
        return Found(
            measured=measured,
            predicted=[
                simulated.predict(point, self.base, costs)
                for point in simulated.predictable(points)
            ],
            colocated={
                count: simulated.colocated(count, DEPTH, self.base, costs)
                for count in self._setup.targets
            },
            acceptance=acceptance(self.recording),
            ranks=self.base.ranks,
            costs=costs,
            full_predicted=full_at(costs, DEPTH) if measured else None,
            real=seen,
            real_error=real_error(seen) if seen else None,
            gaps=self._gaps() if REAL in tiers else [],
        )

    def _emulated(self) -> list[Measured]:
        two_models = not self._setup.quick
        worlds = emulated.worlds(self.base, self._other() if two_models else None)
        return emulated.run(self._setup, worlds, self._store, self._say)

    def _other(self) -> World:
        source = replace(self._setup.source, quantize=OTHER_QUANTIZE, dtype="auto")
        found = self._store.once("recording-other", World, lambda: record(source, self._say, 3))
        return replace(found, revision=f"{found.revision}-{OTHER_QUANTIZE}")

    def _costs(self, measured: Sequence[Measured]) -> Costs:
        """The emulated ones, as the star of one target had them if there was one."""
        one = Point(Mode.BATCHED, (1,), DEPTH)
        found = next((other for other in measured if other.point == one), None)
        return observed(self.base, found) if found else self.base.costs

    def _real(self) -> Real:
        return self._store.once("real", Real, lambda: real.measure(self._setup, self._say))

    def _gaps(self) -> list[gaps.Gap]:
        return self._store.once("gaps", Gaps, self._measure_gaps).found

    def _measure_gaps(self) -> Gaps:
        self._say("drafting after gaps")
        with loaded(self._setup.source) as models:
            models.answer(most=1)
            return gaps.measure(models, DEPTH)


def real_error(found: Real) -> float | None:
    """Of a round that is simulated with the real star's own parts, against its answers' time."""
    star = found.leg(WAITING)
    if star is None or not star.steps:
        return None
    costs = Costs(
        draft_first=straight(star.part_s("draft") / DEPTH, 0.0),
        draft_next=straight(star.part_s("draft") / DEPTH, 0.0),
        verify=straight(star.part_s("verify"), 0.0),
        network_s=star.part_s("queue") + star.part_s("network"),
    )
    rate = constant(0.5)  # a round takes as long whatever is accepted
    predicted = simulate(Star(Mode.BATCHED, 1, DEPTH), costs, lambda one: Drawn(rate, one), 30.0)
    return abs(predicted.round_s / (star.decode_s / star.steps) - 1)
