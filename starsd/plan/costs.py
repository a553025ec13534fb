"""What drafting, verifying and travelling cost: a few measured points each, and lines between."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from starsd.errors import ConfigError


@dataclass(frozen=True)
class Curve:
    """Seconds over a size: rows of a forward, or sequences in it. Straight between the measured
    ``sizes``, flat below the first, and beyond the last as steep as before it."""

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not self.sizes or len(self.sizes) != len(self.seconds) or not rising:
            raise ConfigError(f"a curve of {self.sizes} and {self.seconds}: want rising sizes")
        if min(self.seconds) < 0:
            raise ConfigError(f"a curve of {self.seconds}: want no negative seconds")

    def __call__(self, size: float) -> float:
        if size <= self.sizes[0] or len(self.sizes) == 1:
            return self.seconds[0]
        last = min(bisect_left(self.sizes, size), len(self.sizes) - 1)
        (x0, x1), (y0, y1) = self.sizes[last - 1 : last + 1], self.seconds[last - 1 : last + 1]
        return max(0.0, y0 + (y1 - y0) * (size - x0) / (x1 - x0))

    def times(self, factor: float) -> Curve:
        return replace(self, seconds=tuple(factor * one for one in self.seconds))

    def plus(self, seconds: float) -> Curve:
        """So much more, or less, of every size; never below 0."""
        return replace(self, seconds=tuple(max(0.0, one + seconds) for one in self.seconds))


def rising(points: Sequence[tuple[float, float]]) -> Curve:
    """Through measured points, where what is smaller never costs more: noise only adds."""
    sizes, seconds = zip(*sorted(points), strict=True)
    kept = [min(seconds[place:]) for place in range(len(seconds))]
    return Curve(tuple(sizes), tuple(kept))


def straight(seconds: float, growth: float) -> Curve:
    """``seconds`` for one, and for each more so large a share of it on top (0: free)."""
    return Curve((1.0, 2.0), (seconds, seconds * (1 + growth)))


@dataclass(frozen=True)
class Costs:
    """All seconds. ``draft_first`` and ``draft_next`` are steps of the hub by the sequences in it:
    the one that reads what is new and drafts a token, and those that draft one more. ``verify`` is
    a target's step by its rows. ``network_s`` is a round's way up and down, nobody computing;
    ``hub_job_s`` and ``target_step_s`` are what a job and a step take besides the models, and
    ``request_s`` is what passes between two answers of a sequence."""

    draft_first: Curve
    draft_next: Curve
    verify: Curve
    network_s: float = 0.0
    hub_job_s: float = 0.0
    target_step_s: float = 0.0
    request_s: float = 0.0

    def service_s(self, depth: int, batch: float = 1) -> float:
        """S(d, B): the hub's time for a batch of such jobs, done together."""
        if depth < 1:
            return 0.0
        return self._steps_s(depth, batch) + self.hub_job_s * batch

    def _steps_s(self, depth: int, batch: float) -> float:
        return self.draft_first(batch) + (depth - 1) * self.draft_next(batch)

    def step_s(self, rows: int) -> float:
        """V: a target's step."""
        return self.verify(rows) + self.target_step_s

    def return_s(self, depth: int, sequences: int = 1) -> float:
        """T_return: up, verify, down."""
        return self.network_s + self.step_s(sequences * (1 + depth))

    def even(self, depth: int) -> Costs:
        """With draft steps that all take the mean of those of a round this deep."""
        sizes = self.draft_next.sizes
        steps = Curve(sizes, tuple(self._steps_s(depth, batch) / depth for batch in sizes))
        return replace(self, draft_first=steps, draft_next=steps)

    def slower(self, models: float) -> Costs:
        """With models that take so many times as long."""
        return replace(
            self,
            draft_first=self.draft_first.times(models),
            draft_next=self.draft_next.times(models),
            verify=self.verify.times(models),
        )
