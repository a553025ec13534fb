from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from starsd.bench.record import as_line, kept, rounded, write
from starsd.errors import ConfigError


@dataclass(frozen=True)
class Part:
    share: float | None


@dataclass(frozen=True)
class Whole:
    speed: float
    parts: tuple[Part, ...]
    facts: dict[str, float]


RESULT = Whole(1234567.8, (Part(2 / 3), Part(None)), {"load": 0.12345678})
PLAIN = {"speed": 1234600.0, "parts": [{"share": 0.66667}, {"share": None}]}


def test_a_line_for_programs() -> None:
    line = as_line(RESULT)
    assert "\n" not in line
    assert json.loads(line) == {**PLAIN, "facts": {"load": 0.12346}}


def test_a_file_has_the_raw_data_too(tmp_path: Path) -> None:
    write(tmp_path / "out.json", "whole", RESULT, {"answers": [{"text": "día", "s": 0.1234567}]})
    text = (tmp_path / "out.json").read_text("utf-8")
    assert "día" in text
    assert json.loads(text) == {
        "kind": "whole",
        **PLAIN,
        "facts": {"load": 0.12346},
        "answers": [{"text": "día", "s": 0.12346}],
    }


def test_whole_numbers_and_booleans_stay() -> None:
    values = [123456789, True, "x", None]
    assert rounded(values) == values
    assert rounded({"a": (0.5,)}) == {"a": [0.5]}


def test_a_bad_path_is_told_before_the_work(tmp_path: Path) -> None:
    measured = []

    def measure() -> tuple[Whole, dict[str, Any]]:
        measured.append(1)
        return RESULT, {"times": [1.5]}

    with pytest.raises(ConfigError, match="No such file"):
        kept(tmp_path / "absent" / "out.json", "whole", measure)
    assert measured == []
    assert kept(tmp_path / "out.json", "whole", measure) is RESULT
    assert json.loads((tmp_path / "out.json").read_text())["times"] == [1.5]
    assert kept(None, "whole", measure) is RESULT
