from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROMPTS = Path(__file__).parents[3] / "bench" / "prompts.jsonl"
TALKS = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
)
LONG = ("summarise", "rewrite")
SIZES = {**dict.fromkeys(TALKS, 10), **dict.fromkeys(LONG, 8)}
TURNS = {**dict.fromkeys(TALKS, 2), **dict.fromkeys(LONG, 1)}
MAX_FILE_BYTES = 150_000
MAX_TURN_BYTES = 5_000
SHARED_RUN = 8


@pytest.fixture(scope="module")
def prompts() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PROMPTS.read_text("utf-8").splitlines()]


def turns(prompts: list[dict[str, Any]]) -> list[str]:
    return [turn for prompt in prompts for turn in prompt["turns"]]


def runs(text: str) -> Iterator[tuple[str, ...]]:
    words = text.lower().split()
    return zip(*(words[start:] for start in range(SHARED_RUN)), strict=False)


def test_bytes_are_canonical(prompts: list[dict[str, Any]]) -> None:
    lines = [json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts]
    assert PROMPTS.read_bytes() == "".join(lines).encode()
    assert PROMPTS.stat().st_size <= MAX_FILE_BYTES


def test_ids_count_through_every_category(prompts: list[dict[str, Any]]) -> None:
    wanted = [(f"{name}-{n:02}", name) for name, size in SIZES.items() for n in range(1, size + 1)]
    assert [(prompt["id"], prompt["category"]) for prompt in prompts] == wanted


def test_fields_and_turns(prompts: list[dict[str, Any]]) -> None:
    for prompt in prompts:
        assert list(prompt) == ["id", "category", "turns"]
        assert len(prompt["turns"]) == TURNS[prompt["category"]]


def test_every_turn_is_clean_text(prompts: list[dict[str, Any]]) -> None:
    for turn in turns(prompts):
        assert isinstance(turn, str)
        assert turn == unicodedata.normalize("NFC", turn.strip())
        assert 25 <= len(turn.encode()) <= MAX_TURN_BYTES
        assert not [c for c in turn if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"]


def test_no_text_twice(prompts: list[dict[str, Any]]) -> None:
    """Each prompt was written by itself: no two share a run of eight words."""
    counted = Counter(run for prompt in prompts for run in set(runs("\n".join(prompt["turns"]))))
    assert [run for run, count in counted.items() if count > 1] == []
    assert len(set(turns(prompts))) == len(turns(prompts))


def test_long_inputs(prompts: list[dict[str, Any]]) -> None:
    """An instruction of one paragraph, a blank line, and the input it is about."""
    for prompt in prompts:
        if prompt["category"] in LONG:
            instruction, given = prompt["turns"][0].split("\n\n", 1)
            assert len(instruction.split()) <= 60, prompt["id"]
            assert 300 <= len(given.split()) <= 700, prompt["id"]


@pytest.mark.parametrize("script", ["LATIN SMALL LETTER E WITH ACUTE", "CYRILLIC", "GREEK", "CJK"])
def test_other_scripts_occur(prompts: list[dict[str, Any]], script: str) -> None:
    letters = {char for turn in turns(prompts) for char in turn if char.isalpha()}
    assert [char for char in letters if unicodedata.name(char).startswith(script)]
