"""A decayed mean."""

from __future__ import annotations

import pytest

from starsd.process.mean import WEIGHT, Mean


def test_the_first_few_count_the_same() -> None:
    mean = Mean()
    for value in (1.0, 2.0, 6.0):
        mean.add(value)
    assert mean.value == pytest.approx(3.0)


def test_what_was_long_ago_is_forgotten() -> None:
    mean = Mean()
    mean.add(100.0)
    for _ in range(int(10 / WEIGHT)):
        mean.add(1.0)
    assert mean.value == pytest.approx(1.0, abs=0.01)
