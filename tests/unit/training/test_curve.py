"""The line of JSON a while that says how training went."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from training.curve import Curve, Point, read_curve
from training.objective import Score


def score(loss: float) -> Score:
    return Score(torch.tensor(loss), torch.ones(1), torch.ones(1))


def trained(path: Path, start: int, end: int) -> str:
    with Curve(path, start) as curve:
        for number in range(start + 1, end + 1):
            curve.update(number, score(float(number)))
        curve.judged(end, [0.5, 0.25])
        return curve.last


def test_means_of_losses_and_what_held_out_text_says(tmp_path: Path) -> None:
    last = trained(tmp_path / "curve", 0, 40)
    assert read_curve(tmp_path / "curve") == [
        Point(1, loss=1.0),
        Point(20, loss=11.0),
        Point(40, loss=30.5),
        Point(40, acceptance=[0.5, 0.25]),
    ]
    assert last == "loss 30.500, acceptance 0.500 0.250, 1.62 tokens a round"


@pytest.mark.parametrize("cut", [0, 5])
def test_what_a_killed_run_did_after_its_checkpoint_is_forgotten(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "curve"
    trained(path, 0, 20)
    before = read_curve(path)
    trained(path, 20, 60)
    path.write_bytes(path.read_bytes()[: -cut or None])
    with Curve(path, 20) as curve:
        assert read_curve(path) == before
        assert curve.last == "loss 11.000, acceptance 0.500 0.250, 1.62 tokens a round"
    trained(path, 20, 40)
    assert read_curve(path) == [*before, Point(40, loss=30.5), Point(40, acceptance=[0.5, 0.25])]
