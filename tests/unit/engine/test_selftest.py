from __future__ import annotations

from pathlib import Path

import pytest
import structlog
import torch
from torch.nn import functional

from starsd.engine import attention
from starsd.engine.invariant import ScoreForm
from starsd.engine.selftest import check_invariance
from tests.unit.engine.helpers import make_runner


def test_holds_in_batch_invariant_mode(tiny_model: Path) -> None:
    runner = make_runner(tiny_model, batch_invariant=True)
    assert runner.invariance_holds is True
    result = check_invariance(runner, seed=7)
    assert result.ok
    assert result.compared == 4 * 83


def test_one_slot_is_enough(tiny_model: Path) -> None:
    assert make_runner(tiny_model, batch_invariant=True, max_sequences=1).invariance_holds


def test_normal_mode_is_not_bitwise(tiny_model: Path) -> None:
    runner = make_runner(tiny_model)
    assert runner.invariance_holds is None
    result = check_invariance(runner)
    assert not result.ok
    assert 0 < result.largest < 1e-3


def test_broken_attention_is_noticed(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that sums in an order of its own: start-up says so and goes on."""

    def free_order(
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor,
        form: ScoreForm,
    ) -> torch.Tensor:
        half = keys.shape[2] // 2
        order = [*range(half, keys.shape[2]), *range(half)]
        return functional.scaled_dot_product_attention(
            query, keys[:, :, order], values[:, :, order], mask[..., order], scale=form.scale
        )

    monkeypatch.setattr(attention, "blockwise_attention", free_order)
    with structlog.testing.capture_logs() as logs:
        runner = make_runner(tiny_model, batch_invariant=True)
    assert runner.invariance_holds is False
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert warning["different"] > 0
