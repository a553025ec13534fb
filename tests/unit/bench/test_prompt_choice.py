"""Which prompts a benchmark takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from starsd.bench import prompts as module
from starsd.bench.prompts import Prompt, load_prompts, spread
from starsd.errors import ConfigError


def make(*categories: str) -> list[Prompt]:
    return [Prompt(f"{name}-{n}", name, (name,)) for n, name in enumerate(categories)]


def test_categories_take_turns_and_short_ones_end_early() -> None:
    chosen = spread(make("a", "a", "a", "b", "c", "c"), 5)
    assert [prompt.id for prompt in chosen] == ["a-0", "b-3", "c-4", "a-1", "c-5"]


@pytest.mark.parametrize(("count", "chosen"), [(0, 3), (2, 2), (3, 3), (9, 3)])
def test_count(count: int, chosen: int) -> None:
    assert len(spread(make("a", "a", "b"), count)) == chosen


def test_ours_are_spread_evenly() -> None:
    assert len(spread(load_prompts(), 0)) == 96
    counts = Counter(prompt.category for prompt in spread(load_prompts(), 24))
    assert len(counts) == 10
    assert set(counts.values()) == {2, 3}


def test_a_missing_file_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "PLACES", (tmp_path / "prompts.jsonl",))
    with pytest.raises(ConfigError, match=r"bench/prompts\.jsonl"):
        load_prompts.__wrapped__()


def test_the_first_place_that_has_the_file_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "here.jsonl"
    here.write_text('{"id": "a-1", "category": "a", "turns": ["Hi.", "Bye."]}\n')
    monkeypatch.setattr(module, "PLACES", (tmp_path / "absent", here, *module.PLACES))
    assert load_prompts.__wrapped__() == (Prompt("a-1", "a", ("Hi.", "Bye.")),)
