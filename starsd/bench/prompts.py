"""The benchmarks' prompts: ours, never trained on, each of a category."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from starsd.errors import ConfigError

PLACES = (
    Path(__file__).with_name("prompts.jsonl"),  # in a wheel
    Path(__file__).parents[2] / "bench" / "prompts.jsonl",  # in the repository
)


SHORT_CHARS = 600
"""Prompts longer than this measure the prefill."""


@dataclass(frozen=True)
class Prompt:
    """``turns`` are the user's, in order."""

    id: str
    category: str
    turns: tuple[str, ...]


@cache
def load_prompts() -> tuple[Prompt, ...]:
    """Raises ConfigError where the file is not installed, as in our container images."""
    found = next((place for place in PLACES if place.exists()), None)
    if found is None:
        raise ConfigError(
            "bench/prompts.jsonl is not here: run this from the repository or a wheel"
        )
    rows = map(json.loads, found.read_text("utf-8").splitlines())
    return tuple(Prompt(row["id"], row["category"], tuple(row["turns"])) for row in rows)


def short(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Those whose answers are the work."""
    return [prompt for prompt in prompts if len(prompt.turns[0]) <= SHORT_CHARS]


def spread(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """``count`` of them (0: all), the categories in turn, so that each has about as many."""
    categories: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        categories.setdefault(prompt.category, []).append(prompt)
    dealt = chain.from_iterable(zip_longest(*categories.values()))
    mixed = [prompt for prompt in dealt if prompt is not None]
    return mixed[: count or None]
