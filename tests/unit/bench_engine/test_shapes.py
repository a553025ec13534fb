from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest

from starsd.bench.engine import shapes
from starsd.bench.engine.answers import Answer, Job
from starsd.engine.interface import Logits, Row
from starsd.settings.target import TargetSettings
from tests.scripted import HashModel, ScriptedRunner

SETTINGS = TargetSettings(max_sequences=8, max_length=64)
FOREVER = math.inf


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "TOKENS", 4)
    monkeypatch.setattr(shapes, "POSITIONS", 64)


class ShapedRunner(ScriptedRunner):
    """Its head turns round in batches of eight, at one position."""

    def __init__(self, at: int = -1) -> None:
        super().__init__(HashModel(SETTINGS))
        self.widths: list[int] = []
        self._at = at

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        logits = super().forward(rows)
        if rows[0].want:
            self.widths.append(len(rows))
        if len(rows) == 8 and rows[0].start == self._at:
            return [-one for one in logits]
        return logits


def answers(count: int, length: int = 4) -> list[Answer]:
    return [Answer(Job("p", n, 0.0), [1, 2, n], list(range(length))) for n in range(count)]


def test_nothing_flips_where_shapes_change_nothing() -> None:
    runner = ShapedRunner()
    found = shapes.measure(runner, answers(16), FOREVER)
    assert (found.positions, found.flips, found.rate) == (64, 0, 0)
    assert (found.dtype, found.rows) == ("bfloat16", 8)
    assert runner.widths == 2 * ([8] * 4 + [1] * 32)


def test_flips_between_a_row_alone_and_one_of_eight() -> None:
    found = shapes.measure(ShapedRunner(at=3), answers(8), FOREVER)
    assert (found.positions, found.flips, found.rate) == (32, 8, 0.25)


def test_short_answers_and_odd_ones_are_left_out() -> None:
    found = shapes.measure(ShapedRunner(), [*answers(5, length=3), *answers(9)], FOREVER)
    assert found.positions == 32


def test_no_more_than_enough() -> None:
    assert shapes.measure(ShapedRunner(), answers(40), FOREVER).positions == 64


@pytest.mark.parametrize(("count", "deadline"), [(7, FOREVER), (8, -FOREVER)])
def test_too_few_answers_or_no_time(count: int, deadline: float) -> None:
    found = shapes.measure(ShapedRunner(), answers(count), time.monotonic() + deadline)
    assert (found.positions, found.rate) == (0, None)


def test_decoding_follows_the_answers_text() -> None:
    (answer,) = answers(1)
    (found,) = shapes.decode(ShapedRunner(), [answer])
    model = HashModel(SETTINGS)
    expected = [int(model.logits(answer.text[: 3 + n]).argmax()) for n in range(4)]
    assert found == expected
