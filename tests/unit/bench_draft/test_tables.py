from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from starsd.bench.draft.tables import lines, tables
from tests.unit.bench_draft.results import made


def shown() -> list[list[str]]:
    """Cells of all rows."""
    text = io.StringIO()
    console = Console(file=text, width=200, no_color=True)
    for table in tables(made()):
        console.print(table)
    rows = (line for line in text.getvalue().splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


def test_a_row_for_each_shape_of_each_draft_by_its_name() -> None:
    assert shown()[2:5] == [
        ["head", "0", "chain", "2.00", "2.00", "2.00", "2.00", "0.10", "1.67", "1.67"],
        ["head", "0", "tree", "3.00", "-", "2.00", "3.00", "0.20", "2.00", "-"],
        ["ngram", "0", "chain", "2.00", "2.00", "2.00", "2.00", "-", "2.00", "2.00"],
    ]


def test_what_decides_between_drafts_is_in_one_table() -> None:
    assert shown()[:2] == [
        ["head", "0", "0.10", "1.00", "0.00", "3.00", "2.00"],
        ["ngram", "0", "-", "1.00", "0.00", "2.00", "2.00"],
    ]


def test_hits_by_depth_and_rank() -> None:
    assert shown()[5:] == [["head", "0", "1", "0.00", "1.00"], ["head", "0", "2", "1.00", "-"]]


def test_no_hits_without_trees() -> None:
    chains = replace(made(), drafts=made().drafts[1:])
    assert len(list(tables(chains))) == 2


def test_lines() -> None:
    text = "\n".join(lines(made()))
    assert "speed is what to expect over plain decoding: tokens / (verification + steps x" in text
    assert "A plain step takes 20.0 ms, verification of a chain 1.00, of a tree 1.10 times" in text
    assert "3 prompts are too long" in text
    assert "Test CPU, cores (0, 1), processor time; load average 0.1 before" in text
    assert "left out" not in "\n".join(lines(replace(made(), left_out=0)))
