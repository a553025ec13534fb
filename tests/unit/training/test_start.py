"""First weights of a head that goes on from another."""

from __future__ import annotations

import torch

from training.start import rows_for


def test_rows_of_new_tokens_are_to_the_targets_as_the_known_ones_are() -> None:
    chance = torch.Generator().manual_seed(3)
    target = torch.randn(60, 8, generator=chance)
    learned = target @ torch.randn(8, 8, generator=chance) + torch.randn(8, generator=chance)
    known, ids = torch.arange(0, 60, 2), torch.arange(20, 50)
    told = learned[known]
    told[12] += 1.0  # token 24 has learned more than that
    rows = rows_for(told, known, ids, target)
    assert torch.equal(rows[0::2], told[10:25])
    others = torch.arange(21, 50, 2)
    torch.testing.assert_close(rows[1::2], learned[others], rtol=0.3, atol=0.3)
    exact = rows_for(learned[known], known, ids, target)
    torch.testing.assert_close(exact, learned[ids], rtol=1e-3, atol=1e-3)
