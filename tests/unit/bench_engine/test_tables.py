from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from starsd.bench.engine.result import Result
from starsd.bench.engine.shapes import Shapes
from starsd.bench.engine.tables import lines, tables
from tests.unit.bench.answers import MACHINE
from tests.unit.bench_engine.results import made

EMPTY = Result(clock="processor", seconds={}, settings={}, machine=MACHINE)


def printed(result: Result) -> list[str]:
    page = io.StringIO()
    for table in tables(result):
        Console(width=120, file=page).print(table)
    return [" ".join(line.replace("│", " ").split()) for line in page.getvalue().splitlines()]


def test_a_table_for_each_subject() -> None:
    shown = printed(made())
    for line in (
        "bfloat16 20.0 1.00 22.0 1.10",
        "bfloat16 800 2.50",
        "transformers 320 -",
        "30 1400",
        "float32, batched 1000 1 0.100% 0.100% 0.100% -",
        "int8 1000 20 2.000% 1.000% 3.000% 0.00410",
        "int8 11.8 MB 19.0 ms",
        "float32 2.50",
    ):
        assert line in shown


def test_what_is_told() -> None:
    assert list(lines(made())) == [
        "met: bfloat16: 16 rows of one take 1.10 of 1 row, want 1.15 at most",
        "missed: int8: 16 rows of one take 1.20 of 1 row, want 1.15 at most",
        "met: bfloat16: decoding is 2.50 of eager transformers, want 2.0 at least",
        "bfloat16 by torch: 16 of 1024 tokens (1.562%) differ between a row alone and one of 8",
        "int8: the model has no room for contexts of [8192]",
        "Compiled code is batch-invariant as it is, at no further cost.",
        "Test CPU, cores (0, 1), real time; load average 0.1 before, 1.2 after",
    ]


def test_on_one_core_decoding_has_no_bar() -> None:
    assert "The bar for decoding is for bfloat16 on 2 cores." in lines(made(threads=1))


def test_too_few_answers_for_shapes() -> None:
    few = replace(made(), shapes=Shapes("bfloat16", 8, 0, 0, None))
    assert any("too few long answers" in line for line in lines(few))


def test_what_was_not_measured_is_not_shown() -> None:
    assert printed(EMPTY) == []
    assert list(lines(EMPTY)) == [
        "Test CPU, cores (0, 1), processor time; load average 0.1 before, 1.2 after"
    ]


def test_threads_of_one_core_are_told() -> None:
    result = replace(EMPTY, machine={**MACHINE, "siblings": ((0, 1),)})
    assert list(lines(result))[-1] == "Some cores are threads of one physical core."
