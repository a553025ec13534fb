"""What a run of ``starsd bench speed`` says: medians, ratios, and where a round's time went."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starsd.bench.exposition import less
from starsd.bench.prompts import Prompt
from starsd.check.client import Answer
from starsd.errors import ConfigError

VARIANTS = ("plain", "colocated", "star")
PARTS = ("queue", "draft", "network", "verify")
PHRASE, OFTEN = 8, 4
"""A text that says so many tokens in a row so often is looping."""


def loops(ids: Sequence[int]) -> bool:
    """Small models fall into repeating themselves, and then any draft is right."""
    phrases = Counter(tuple(ids[at : at + PHRASE]) for at in range(len(ids) - PHRASE + 1))
    return max(phrases.values(), default=0) >= OFTEN


@dataclass(frozen=True)
class Timed:
    """One answer. ``decoded`` tokens came in the ``decode_s`` after the first ones."""

    answer: Answer
    ttft_s: float
    decode_s: float
    decoded: int
    prompt: str = ""
    category: str = ""
    variant: str = ""
    repeat: int = 0

    def of(self, prompt: Prompt, variant: str, repeat: int) -> Timed:
        return replace(
            self, prompt=prompt.id, category=prompt.category, variant=variant, repeat=repeat
        )

    @property
    def loops(self) -> bool:
        return loops(self.answer.ids)

    @property
    def tokens_per_s(self) -> float | None:
        """None for an answer too short to have a speed."""
        return self.decoded / self.decode_s if self.decoded and self.decode_s > 0 else None

    def as_json(self) -> dict[str, Any]:
        stats = self.answer.stats
        return {
            "prompt": self.prompt,
            "category": self.category,
            "variant": self.variant,
            "repeat": self.repeat,
            "tokens": len(self.answer.ids),
            "reason": self.answer.reason,
            "ttft_ms": 1000 * self.ttft_s,
            "decode_s": self.decode_s,
            "tokens_per_s": self.tokens_per_s,
            "rounds": stats.rounds,
            "proposed": stats.proposed,
            "accepted": stats.accepted,
            "fallbacks": stats.fallbacks,
            "text": self.answer.text,
        }


@dataclass(frozen=True)
class Counts:
    """Counters of a target: rounds, how many proposed a token at a position and how many had one
    accepted there, and seconds of rounds by part."""

    rounds: float = 0.0
    proposed: Mapping[str, float] = field(default_factory=dict)
    accepted: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.rounds - before.rounds,
            less(self.proposed, before.proposed),
            less(self.accepted, before.accepted),
            less(self.seconds, before.seconds),
        )


@dataclass(frozen=True)
class Category:
    """The star on the prompts of one category."""

    category: str
    prompts: int
    acceptance: float | None
    tokens_per_round: float | None
    star_over_plain: float | None
    star_over_colocated: float | None


@dataclass(frozen=True)
class Result:
    """Speeds are medians over the answers that all variants gave a speed to, ratios are those of
    medians; ``spread`` holds the quartiles of the ratio answer by answer. Times of a round are
    means over the star's rounds. None where the star had no round."""

    star_over_plain: float
    star_over_colocated: float
    star_over_best_plain: float
    plain_by_precision: dict[str, float]
    spread: dict[str, tuple[float, float]]
    plain_tokens_per_s: float
    colocated_tokens_per_s: float
    star_tokens_per_s: float
    ttft_ms: dict[str, float]
    tokens_per_round: float | None
    tokens_per_round_without_loops: float | None
    looping: int
    acceptance: float | None
    acceptance_by_position: list[float]
    round_us: dict[str, float]
    rounds: int
    fallbacks: int
    categories: list[Category]
    identical: int
    different: int
    total: int
    batch_invariant: bool
    settings: dict[str, Any]
    machine: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Rounding may change an answer, but not in batch-invariant mode."""
        return not (self.batch_invariant and self.different)


Paired = Sequence[Mapping[str, Timed]]


def summarise(
    timed: Iterable[Timed],
    counts: Counts,
    settings: dict[str, Any],
    machine: dict[str, Any],
    *,
    batch_invariant: bool,
) -> Result:
    """``counts`` are the star's target's. Raises ConfigError if no answer has a speed."""
    pairs = pair(timed)
    star = [by["star"] for by in pairs]
    speeds = median_speeds(pairs)
    if not speeds:
        raise ConfigError("no prompt has an answer of two steps from each: raise --max-tokens")
    plain = plain_speeds(pairs)
    identical = sum(by["star"].answer.outcome == by["plain"].answer.outcome for by in pairs)
    return Result(
        star_over_plain=speeds["star"] / speeds["plain"],
        star_over_colocated=speeds["star"] / speeds["colocated"],
        star_over_best_plain=speeds["star"] / max(plain.values()),
        plain_by_precision=plain,
        spread={
            f"star_over_{other}": quartiles(_ratios(pairs, other))
            for other in ("plain", "colocated")
        },
        plain_tokens_per_s=speeds["plain"],
        colocated_tokens_per_s=speeds["colocated"],
        star_tokens_per_s=speeds["star"],
        ttft_ms={v: 1000 * statistics.median(by[v].ttft_s for by in pairs) for v in VARIANTS},
        tokens_per_round=tokens_per_round(star),
        tokens_per_round_without_loops=tokens_per_round([one for one in star if not one.loops]),
        looping=sum(one.loops for one in star),
        acceptance=acceptance(star),
        acceptance_by_position=by_position(counts),
        round_us=round_us(counts, sum(one.decode_s for one in star)),
        rounds=sum(one.answer.stats.rounds for one in star),
        fallbacks=sum(one.answer.stats.fallbacks for one in star),
        categories=by_category(pairs),
        identical=identical,
        different=len(pairs) - identical,
        total=len(pairs),
        batch_invariant=batch_invariant,
        settings=settings,
        machine=machine,
    )


def pair(timed: Iterable[Timed]) -> list[dict[str, Timed]]:
    """The answers of all variants to the same prompt, time for time."""
    pairs: dict[tuple[str, int], dict[str, Timed]] = {}
    for one in timed:
        pairs.setdefault((one.prompt, one.repeat), {})[one.variant] = one
    return list(pairs.values())


def _speeds(pairs: Paired) -> list[dict[str, float]]:
    """Tokens per second by variant, where all have one."""
    found = []
    for by in pairs:
        speeds = {name: speed for name in VARIANTS if (speed := by[name].tokens_per_s) is not None}
        if len(speeds) == len(VARIANTS):
            found.append(speeds)
    return found


def median_speeds(pairs: Paired) -> dict[str, float]:
    """Empty if no prompt gave a speed to all variants."""
    speeds = _speeds(pairs)
    return {v: statistics.median(by[v] for by in speeds) for v in VARIANTS} if speeds else {}


def plain_speeds(pairs: Paired) -> dict[str, float]:
    """Medians of plain decoding in every precision measured, over the same prompts."""
    counted = [by for by in pairs if all(by[name].tokens_per_s is not None for name in VARIANTS)]
    names = [name for name in counted[0] if name.startswith("plain")] if counted else []
    return {
        name: statistics.median(speed for by in counted if (speed := by[name].tokens_per_s))
        for name in names
    }


def _ratios(pairs: Paired, other: str) -> list[float]:
    return [by["star"] / by[other] for by in _speeds(pairs)]


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third; of one value, that value."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def tokens_per_round(star: Sequence[Timed]) -> float | None:
    """What a verification gives: the accepted tokens and the target's own."""
    rounds = sum(one.answer.stats.rounds for one in star)
    accepted = sum(one.answer.stats.accepted for one in star)
    return (accepted + rounds) / rounds if rounds else None


def acceptance(star: Sequence[Timed]) -> float | None:
    proposed = sum(one.answer.stats.proposed for one in star)
    return sum(one.answer.stats.accepted for one in star) / proposed if proposed else None


def by_position(counts: Counts) -> list[float]:
    """Share of the proposals with a token at a position that had one accepted there."""
    reached = sorted(
        (position for position in counts.proposed if counts.proposed[position]), key=int
    )
    return [counts.accepted.get(place, 0.0) / counts.proposed[place] for place in reached]


def round_us(counts: Counts, decode_s: float) -> dict[str, float]:
    """Microseconds of a round by part. ``total`` is all decoding time per round, and ``rest`` what
    of it no part covers: answers' transport to us, plain steps for want of a proposal.

    Redis dates a job to 1 ms, and ``queue`` begins there: a faster network may show there.
    """
    if not counts.rounds:
        return {}
    parts = {part: 1e6 * counts.seconds.get(part, 0.0) / counts.rounds for part in PARTS}
    total = 1e6 * decode_s / counts.rounds
    return {**parts, "rest": total - sum(parts.values()), "total": total}


def by_category(pairs: Paired) -> list[Category]:
    """The mean over all prompts hides those where drafts are good."""
    groups: dict[str, list[Mapping[str, Timed]]] = {}
    for by in pairs:
        groups.setdefault(by["star"].category, []).append(by)
    return [_category(name, group) for name, group in groups.items()]


def _category(name: str, pairs: Paired) -> Category:
    star, speeds = [by["star"] for by in pairs], median_speeds(pairs)
    return Category(
        category=name,
        prompts=len({one.prompt for one in star}),
        acceptance=acceptance(star),
        tokens_per_round=tokens_per_round(star),
        star_over_plain=speeds["star"] / speeds["plain"] if speeds else None,
        star_over_colocated=speeds["star"] / speeds["colocated"] if speeds else None,
    )
