"""The emulated tier's points, to be looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from starsd.bench.scale.gaps import Gap
from starsd.bench.scale.models import DEEPEST
from starsd.bench.scale.point import Measured, Point
from starsd.bench.scale.real import Real
from starsd.bench.scale.setup import DEPTH
from starsd.bench.scale.simulated import Predicted
from starsd.plan.acceptance import Acceptance, rounds
from starsd.plan.costs import Costs
from starsd.plan.star import Figures, Mode


@dataclass(frozen=True)
class Found:
    """Everything that was measured, to be summed up."""

    measured: Sequence[Measured]
    predicted: Sequence[Predicted]
    colocated: Mapping[int, Figures]
    acceptance: Acceptance
    ranks: Sequence[Sequence[int]]
    """Of the recorded texts, as ``World`` has them."""
    costs: Costs
    full_predicted: int | None
    real: Real | None
    real_error: float | None
    gaps: Sequence[Gap]

    @property
    def s_over_v(self) -> float:
        """Of the emulated tier, at the usual depth."""
        return self.costs.service_s(DEPTH) / self.costs.verify(1 + DEPTH)


class Curves:
    """Looks up points of the emulated tier."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._by_point = {one.point: one for one in found.measured}

    def noted(self, note: str) -> Measured | None:
        """The first point of this note."""
        return next((one for one in self._found.measured if one.point.note == note), None)

    def get(self, mode: Mode, targets: int, depth: int = DEPTH, note: str = "") -> Measured | None:
        depth = 0 if mode is Mode.PLAIN else depth
        return self._by_point.get(Point(mode, (1,) * targets, depth, note))

    def rate(self, one: Measured) -> float:
        """Tokens/s, by its rounds and what rounds give on average: free of the luck that the texts
        of a few seconds bring."""
        if not one.round_s:
            return 0.0
        return sum(one.point.sequences) * self._tokens(one) / one.round_s

    def _tokens(self, one: Measured) -> float:
        """Of a round. Of targets of one sequence it is known how deep their rounds were."""
        acceptance, steps = self._found.acceptance, one.target.get("steps", 0.0)
        if one.point.mode is Mode.PLAIN:
            return 1.0
        if max(one.point.sequences) > 1 or not steps:
            return acceptance.tokens(one.point.depth)
        deep = (one.target.get(f"reaching_{token}", 0.0) / steps for token in range(DEEPEST))
        return 1.0 + sum(share * acceptance.at(token) for token, share in enumerate(deep))

    def own_rate(self, one: Measured) -> float:
        """Tokens/s, as they came."""
        return sum(one.point.sequences) * one.tokens_per_round / one.round_s if one.round_s else 0.0

    def best_fixed(self, other: Measured) -> float:
        """Tokens/s of the best fixed depth, plain decoding among them, with as many targets and on
        just those texts that ``other`` went through: which depth is right is a matter of luck."""
        points = (one for one in self._plain_points() if one.point.targets == other.point.targets)
        fixed = (one for one in points if one.point.mode in (Mode.PLAIN, Mode.BATCHED))
        return max((self._rate_on(other, one) for one in fixed), default=0.0)

    def _rate_on(self, other: Measured, fixed: Measured) -> float:
        tokens = sum(end - start for _, start, end in other.spans)
        ranks, depth = self._found.ranks, fixed.point.depth
        needed = sum(rounds(ranks[text], start, end, depth) for text, start, end in other.spans)
        return sum(fixed.point.sequences) * tokens / needed / fixed.round_s

    def counts(self, mode: Mode) -> list[int]:
        """Targets of its points."""
        return sorted(one.point.targets for one in self._plain_points() if one.point.mode is mode)

    def _plain_points(self) -> Iterator[Measured]:
        """Of equal targets with a sequence each, at the usual depth where it is a star's."""
        for one in self._found.measured:
            if not one.point.note and max(one.point.sequences) == 1:
                yield one
