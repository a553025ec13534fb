"""Sleeping, and looking again and again while more is to be expected (STARSD_SPIN_MS)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from starsd.bus.waiting import Waiter, wait_readable


class Ticking:
    """Every look at it takes a millisecond."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each look in vain that did not sleep."""
    seen: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: seen.append(None))
    return seen


def test_says_whether_there_is_something(ends: tuple[int, int]) -> None:
    reader, writer = ends
    assert not wait_readable([reader], 0.0)
    assert not wait_readable([], 0.001)
    os.write(writer, b"1")
    assert wait_readable([reader], 1.0)


@pytest.mark.parametrize("spin_s", [0.0, 0.05])
def test_goes_on_looking_for_a_while_after_something_came(
    ends: tuple[int, int], looks: list[None], spin_s: float
) -> None:
    reader, writer = ends
    wait = Waiter(spin_s, Ticking())
    wait([reader], 0.0)
    assert not looks, "nothing came yet"
    os.write(writer, b"1")
    wait([reader], 1.0)
    os.read(reader, 1)
    wait([reader], 0.1)
    assert 300 * spin_s <= len(looks) <= 1000 * spin_s
    before = len(looks)
    wait([reader], 0.01)
    assert len(looks) == before, "it sleeps again"


def test_looks_no_longer_than_it_may_wait(ends: tuple[int, int], looks: list[None]) -> None:
    reader, writer = ends
    wait = Waiter(10.0, Ticking())
    os.write(writer, b"1")
    wait([reader], 1.0)
    os.read(reader, 1)
    wait([reader], 0.02)
    assert 0 < len(looks) <= 20
