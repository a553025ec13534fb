"""What a planner answers: how many targets a hub carries, how deep to draft, when another hub
pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from starsd.plan.acceptance import Acceptance, Drawn
from starsd.plan.analytic import figures, full_at
from starsd.plan.costs import Costs
from starsd.plan.simulation import Simulated, simulate
from starsd.plan.star import Figures, Mode, Star

ROUNDS = 400
"""Of each simulated star, at least; half as many more pass before anything counts."""
WORTH = 1.0
"""Times plain decoding: what a target must get to be carried."""


@dataclass(frozen=True)
class Question:
    """``mode`` is that of the star; ``depths`` are those to choose from; ``most`` targets are
    looked at."""

    mode: Mode
    depths: tuple[int, ...]
    most: int
    sequences: int = 1
    hubs: int = 1


@dataclass(frozen=True)
class Line:
    """A star of so many targets at its best depth (0: better without drafting), and the same
    targets without a hub."""

    targets: int
    depth: int
    formula: Figures
    simulated: Simulated
    plain: float
    colocated: float
    accelerators: int

    @property
    def over_plain(self) -> float:
        return self.simulated.throughput / self.plain

    @property
    def per_accelerator(self) -> float:
        """Hub counted, over plain decoding's."""
        return self.over_plain * self.targets / self.accelerators


@dataclass(frozen=True)
class Answer:
    """``carries``: targets up to which each gets more than plain decoding gives it, as far as was
    looked; ``full_at``: N_full of a hub that serves one job at a time at the best depth of one
    target, if drafting pays; ``second_hub_at``: targets from which on a second hub gives more than
    another target does, if there are such."""

    carries: int
    full_at: int | None
    second_hub_at: int | None
    lines: tuple[Line, ...]


def answer(question: Question, costs: Costs, acceptance: Acceptance) -> Answer:
    lines = tuple(line(question, targets, costs, acceptance) for targets in counts(question.most))
    depth = lines[0].depth
    carried = [one.targets for one in lines if one.depth and one.over_plain > WORTH]
    return Answer(
        carries=max(carried, default=0),
        full_at=full_at(costs, depth) if depth else None,
        second_hub_at=second_hub_at(question, costs, acceptance),
        lines=lines,
    )


def counts(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ... and ``most`` itself."""
    count = 1
    while count < most:
        yield count
        half = count // 2 * 3
        if 2 < half < min(most, 2 * count):
            yield half
        count *= 2
    yield most


def line(question: Question, targets: int, costs: Costs, acceptance: Acceptance) -> Line:
    """The best depth by formula, then simulated."""
    star = best(question, targets, costs, acceptance)
    formula = figures(star, costs, acceptance)
    plain = Star(Mode.PLAIN, targets, 0, question.sequences)
    return Line(
        targets=targets,
        depth=star.depth,
        formula=formula,
        simulated=simulated(star, formula, costs, acceptance),
        plain=figures(plain, costs, acceptance).throughput,
        colocated=colocated(question, targets, costs, acceptance),
        accelerators=star.accelerators,
    )


def colocated(question: Question, targets: int, costs: Costs, acceptance: Acceptance) -> float:
    """Throughput with a draft beside each target, at the best depth."""
    stars = (Star(Mode.COLOCATED, targets, one, question.sequences) for one in question.depths)
    return max(figures(star, costs, acceptance).throughput for star in stars)


def best(question: Question, targets: int, costs: Costs, acceptance: Acceptance) -> Star:
    """The depth of the most throughput, plain decoding among the choices."""
    choices = [Star(Mode.PLAIN, targets, 0, question.sequences)]
    choices += (
        Star(question.mode, targets, depth, question.sequences, question.hubs)
        for depth in question.depths
    )
    return max(choices, key=lambda star: figures(star, costs, acceptance).throughput)


def simulated(star: Star, formula: Figures, costs: Costs, acceptance: Acceptance) -> Simulated:
    """For long enough that luck evens out."""
    horizon_s = 1.5 * ROUNDS * formula.round_s / min(1.0, star.targets * star.sequences / 8)
    return simulate(star, costs, lambda number: Drawn(acceptance, number), horizon_s, horizon_s / 3)


def second_hub_at(question: Question, costs: Costs, acceptance: Acceptance) -> int | None:
    """By formula: the least number of targets from which on one accelerator more is better spent
    on a second hub than on another target."""
    one, two = replace(question, hubs=1), replace(question, hubs=2)

    def throughput(asked: Question, targets: int) -> float:
        star = best(asked, targets, costs, acceptance)
        return figures(star, costs, acceptance).throughput

    pays = [
        targets
        for targets in range(2, question.most + 1)
        if throughput(two, targets) > throughput(one, targets + 1)
    ]
    return next(iter(_unbroken_end(pays, question.most)), None)


def _unbroken_end(values: Sequence[int], last: int) -> list[int]:
    """The longest run of consecutive values that ends at ``last``."""
    run: list[int] = []
    for value in reversed(values):
        if value != last - len(run):
            break
        run.insert(0, value)
    return run
