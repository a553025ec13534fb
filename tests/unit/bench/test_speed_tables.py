from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from starsd.bench.speed_result import Counts, Result, summarise
from starsd.bench.speed_tables import lines, tables
from starsd.protocol.frames import RequestStats
from tests.unit.bench.answers import COUNTS, MACHINE, trio


def make(counts: Counts = COUNTS) -> Result:
    return summarise(trio(12.5, 10, 25), counts, {}, MACHINE, batch_invariant=True)


def printed(result: Result) -> list[str]:
    page = io.StringIO()
    for table in tables(result):
        Console(width=120, file=page).print(table)
    return [" ".join(line.replace("│", " ").split()) for line in page.getvalue().splitlines()]


def test_what_is_shown() -> None:
    shown = printed(make())
    assert "plain target 12.5 100" in shown
    assert "star target and draft on a core each 25.0 100" in shown
    assert "1000 10000 2000 25000 162000 200000 2.00" in shown
    assert "0.40 0.75 0.25 0.00" in shown
    assert "writing 1 0.40 2.00 2.00 2.50" in shown


def test_without_rounds() -> None:
    stats = RequestStats(fallbacks=5)
    none = summarise(trio(10, 10, 10, stats=stats), Counts(), {}, MACHINE, batch_invariant=False)
    shown = printed(none)
    assert "writing 1 - - 1.00 1.00" in shown
    assert not any("rounds" in line or "position" in line for line in shown)


def test_spread_identity_and_load_are_told() -> None:
    told = list(lines(make()))
    assert told == [
        "star_over_plain 2.000, half of the answers within 2.000 to 2.000",
        "star_over_colocated 2.500, half of the answers within 2.500 to 2.500",
        "1 of 1 answers identical to plain decoding",
        "Test CPU, cores (0, 1); load average 0.1 before, 1.2 after",
    ]


def test_a_failure_is_told() -> None:
    failed = replace(make(), identical=0, different=1)
    assert "0 of 1 answers identical to plain decoding: FAILED" in "\n".join(lines(failed))


def test_two_threads_of_one_core_are_told() -> None:
    result = replace(make(), machine={**MACHINE, "siblings": ((0, 1),)})
    assert any("threads of one physical core" in line for line in lines(result))
