from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from starsd.plan.acceptance import constant
from starsd.plan.answers import Question, answer, best, counts, second_hub_at
from starsd.plan.costs import Costs, straight
from starsd.plan.plot import draw
from starsd.plan.star import Mode
from starsd.plan.tables import costs_table, plan_lines, plan_table
from tests.unit.plan.support import COSTS, FLAT

QUESTION = Question(Mode.FIFO, (1, 2, 3, 5, 8), most=8)
DEAR = Costs(straight(0.06, 0.0), straight(0.06, 0.0), straight(0.05, 0.0))
"""A draft as slow as its target."""


def test_which_numbers_are_looked_at() -> None:
    assert list(counts(1)) == [1]
    assert list(counts(12)) == [1, 2, 3, 4, 6, 8, 12]
    assert list(counts(10)) == [1, 2, 3, 4, 6, 8, 10]


def test_a_fifo_hub_carries_so_many() -> None:
    found = answer(replace(QUESTION, depths=(5,)), FLAT, constant(0.7))
    assert found.lines[0].over_plain > 1.3
    assert (found.carries, found.full_at) == (6, 4)
    assert found.lines[-1].depth == 0  # eight of them had better be without it


def test_a_full_hub_has_less_time_for_each() -> None:
    depths = [best(QUESTION, targets, FLAT, constant(0.7)).depth for targets in (1, 8)]
    assert depths[1] < depths[0]


def test_what_does_not_pay_is_not_done() -> None:
    found = answer(QUESTION, DEAR, constant(0.3))
    assert [one.depth for one in found.lines] == [0] * len(found.lines)
    assert (found.carries, found.full_at) == (0, None)
    assert list(plan_lines(found)) == [
        "speculation does not pay here: no target gets more than plain decoding gives it"
    ]


def test_deeper_where_more_is_accepted() -> None:
    shallow, deep = (best(QUESTION, 1, COSTS, constant(rate)).depth for rate in (0.2, 0.9))
    assert shallow < deep


def test_a_second_hub_pays_once_the_first_is_full() -> None:
    at = second_hub_at(QUESTION, FLAT, constant(0.7))
    assert at is not None
    assert 2 < at <= 8
    idle = Costs(straight(0.0001, 0.0), straight(0.0001, 0.0), straight(0.05, 0.0))
    assert second_hub_at(QUESTION, idle, constant(0.7)) is None


def test_accelerators_count_the_hub() -> None:
    one = answer(QUESTION, FLAT, constant(0.7)).lines[0]
    assert one.accelerators == 2
    assert one.per_accelerator == pytest.approx(one.over_plain / 2)


def test_as_a_table_and_as_a_plot(tmp_path: Path) -> None:
    found = answer(QUESTION, FLAT, constant(0.7))
    assert plan_table(found, "fifo").row_count == len(found.lines)
    assert costs_table(FLAT, constant(0.7)).row_count == 7
    first, second, third = plan_lines(found)
    assert first.startswith(f"a hub carries {found.carries} targets")
    assert second.endswith("(the paper's N_full)")
    assert third == f"a second hub pays from {found.second_hub_at} targets on"
    total, latency = draw(found, tmp_path / "plan.png").axes
    assert list(total.lines[0].get_xdata()) == [one.targets for one in found.lines]
    assert latency.get_ylabel() == "ms a token"
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
