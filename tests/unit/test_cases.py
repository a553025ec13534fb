"""Every kind of fault that broke other servers has a test named after it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = {
    "a": (1, 3, 4, 5, 6, 7, 8),
    "b": (1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 15, 16),
    "c": (1, 2, 3, 4, 5, 7, 10, 11, 12, 13, 15),
    "d": (1, 3, 4, 6),
    "e": (1, 2, 3, 5, 7, 8, 10, 11, 13, 14, 15, 17, 18, 19, 22, 24, 26, 27),
    "f": (1, 2, 4, 6, 10),
    "g": (5, 7, 9, 12),
}
"""Letters: text, streams, requests, sampling, speculation, lifecycle, gateway and star."""


def test_every_case_has_a_test_named_after_it() -> None:
    named = re.compile(r"^(?:async )?def test_([a-g]\d+)_", re.MULTILINE)
    found = {row for file in TESTS.rglob("test_*.py") for row in named.findall(file.read_text())}
    assert found == {f"{letter}{number}" for letter, numbers in ROWS.items() for number in numbers}
