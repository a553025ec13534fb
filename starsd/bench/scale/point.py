"""One point of a curve: so many targets, drafted for in some way, for some seconds."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from starsd.bench.scale import counters
from starsd.bench.scale.load import Span, Stream, running, streams
from starsd.bench.scale.star import EmulatedStar
from starsd.bench.scale.world import World
from starsd.check.lab import Service
from starsd.plan.star import Mode

WARM_UP_S = 1.5
"""By then everybody decodes, and has reported so."""


@dataclass(frozen=True)
class Point:
    """What is asked. ``sequences`` of each target, which need not be equal; ``note`` tells points
    of one shape apart."""

    mode: Mode
    sequences: tuple[int, ...]
    depth: int
    note: str = ""

    @property
    def targets(self) -> int:
        return len(self.sequences)

    @property
    def key(self) -> str:
        """Its file's name."""
        shape = f"{self.targets}x{max(self.sequences)}-depth{self.depth}"
        return "-".join(part for part in (self.note, str(self.mode), shape) if part)


@dataclass(frozen=True)
class Measured:
    """What came of it. ``tokens_per_s`` and ``gaps_ms`` (of rounds as the client sees them) by
    target; ``hub`` and ``target`` (all of them) are what they counted, ``server`` what Redis did.
    """

    point: Point
    seconds: float
    tokens_per_s: list[float]
    tokens_per_round: float
    gaps_ms: list[list[float]]
    mismatched: int
    spans: list[Span] = field(default_factory=list)
    """What its rounds gave, where they were not all equally deep."""
    between_s: float = 0.0
    """From the last token of an answer to the first one of the next, on average."""
    hub: dict[str, float] = field(default_factory=dict)
    target: dict[str, float] = field(default_factory=dict)
    server: dict[str, float] = field(default_factory=dict)

    @property
    def throughput(self) -> float:
        return sum(self.tokens_per_s)

    @property
    def round_s(self) -> float:
        """Between two verifications of a sequence of one answer, as the client sees them."""
        gaps = [gap for target in self.gaps_ms for gap in target]
        return statistics.fmean(gaps) / 1000 if gaps else 0.0

    @property
    def busy(self) -> float:
        return self._share("busy_s")

    @property
    def idle(self) -> float:
        return 1 - self.busy if self.hub else 0.0

    @property
    def unforced(self) -> float:
        """At most so much of the hub's time was idle with a job at hand: what is neither computing
        nor waiting for anything to arrive."""
        return self._share("other_s")

    @property
    def hits(self) -> float:
        """The share of jobs that found their proposal drafted before they came."""
        met = sum(count for name, count in self.hub.items() if name.startswith("met_"))
        return self.hub.get("met_hit", 0.0) / met if met else 0.0

    def _share(self, part: str) -> float:
        names = ("busy_s", "ahead_s", "idle_s", "other_s")
        whole = sum(self.hub.get(name, 0.0) for name in names)
        return self.hub.get(part, 0.0) / whole if whole else 0.0

    @property
    def wait_ms(self) -> float:
        """Of a step of a target, for proposals."""
        return 1000 * self.target.get("wait_s", 0.0) / max(1.0, self.target.get("steps", 0.0))


def measure(
    star: EmulatedStar,
    targets: Sequence[Service],
    worlds: Sequence[World],
    point: Point,
    seconds: float,
) -> Measured:
    """Ask these targets, whose hub is there. Raises what ``load.running`` does, httpx.HTTPError."""
    asked = streams([one.url for one in targets], worlds, point.sequences)
    return asyncio.run(_measure(star, targets, asked, point, seconds))


async def _measure(
    star: EmulatedStar,
    targets: Sequence[Service],
    asked: Sequence[Stream],
    point: Point,
    seconds: float,
) -> Measured:
    async with running(asked):
        await asyncio.sleep(WARM_UP_S)
        before = await asyncio.to_thread(counters.look, star.hub, targets, star.redis_url)
        since = time.perf_counter()
        await asyncio.sleep(seconds)
        until = time.perf_counter()
        after = await asyncio.to_thread(counters.look, star.hub, targets, star.redis_url)
    return summed(asked, point, since, until, after.since(before))


def summed(
    asked: Sequence[Stream], point: Point, since: float, until: float, counted: counters.Look
) -> Measured:
    """Between two moments."""
    tokens, gaps = [0] * point.targets, [list[float]() for _ in range(point.targets)]
    for stream in asked:
        tokens[stream.target] += stream.tokens(since, until)
        gaps[stream.target] += (1000 * gap for gap in stream.gaps(since, until))
    between = [gap for stream in asked for gap in stream.pauses(since, until)]
    went_on = [span for stream in asked for span in stream.rounds(since, until)]
    return Measured(
        point=point,
        seconds=until - since,
        tokens_per_s=[one / (until - since) for one in tokens],
        tokens_per_round=sum(end - start for _, start, end in went_on) / max(1, len(went_on)),
        gaps_ms=gaps,
        mismatched=sum(stream.mismatched for stream in asked),
        spans=went_on if point.note else [],
        between_s=statistics.fmean(between) if between else 0.0,
        hub=dict(counted.hub),
        target=counted.all_targets(),
        server=dict(counted.server),
    )
