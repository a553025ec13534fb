"""Loss and acceptance against the plain formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.objective import STEP_DECAY, labels, score
from training.trainer import tokens_per_round

BATCH, LENGTH, HIDDEN, VOCAB, TARGET = 2, 150, 8, 12, 40


def made(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """The target's states, its head, and which of its tokens a draft has."""
    chance = torch.Generator().manual_seed(seed)
    states = torch.randn(BATCH * LENGTH, HIDDEN, generator=chance)
    head = torch.randn(TARGET, HIDDEN, generator=chance)
    return states, head, torch.randperm(TARGET, generator=chance)[:VOCAB].sort().values


def test_labels_are_the_targets_distribution_within_the_draft_vocabulary() -> None:
    states, head, ids = made()
    found = labels(states, (states @ head.T).argmax(-1), head, ids)
    logits = states @ head.T
    torch.testing.assert_close(found.wanted, logits[:, ids].softmax(-1))
    assert torch.equal(found.known, torch.isin(logits.argmax(-1), ids))
    assert 0 < found.known.sum() < len(states)


@pytest.mark.parametrize("steps", [1, 3])
def test_loss_and_slopes_are_those_of_the_formula(steps: int) -> None:
    states, head, ids = made()
    found = labels(states, (states @ head.T).argmax(-1), head, ids)
    weights = torch.rand(BATCH, LENGTH) + 0.5
    lm_head = torch.randn(VOCAB, HIDDEN, requires_grad=True)
    drafted = [torch.randn(BATCH, LENGTH - s, HIDDEN, requires_grad=True) for s in range(steps)]
    mine = score(drafted, lm_head, found, weights).loss
    mine.backward()  # type: ignore[no-untyped-call]
    slopes = [lm_head.grad, *(one.grad for one in drafted)]
    lm_head.grad = None
    for one in drafted:
        one.grad = None
    plain = torch.zeros(())
    wanted, known = found.wanted.view(BATCH, LENGTH, -1), found.known.view(BATCH, LENGTH)
    for step, one in enumerate(drafted):
        surprise = -(wanted[:, step:] * (one @ lm_head.T).log_softmax(-1)).sum(-1)
        share = weights[:, step:] / weights[:, step:].sum()
        plain = plain + STEP_DECAY**step * (surprise * share * known[:, step:]).sum()
    plain = plain / sum(STEP_DECAY**step for step in range(steps))
    plain.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(mine, plain)
    for slope, leaf in zip(slopes, [lm_head, *drafted], strict=True):
        torch.testing.assert_close(slope, leaf.grad)


def test_acceptance_counts_chains_that_were_right_until_there() -> None:
    states, head, ids = made(1)
    found = labels(states, (states @ head.T).argmax(-1), head, ids)
    weights = torch.where(torch.rand(BATCH, LENGTH) < 0.8, 1.0, 0.3)
    right = states.view(BATCH, LENGTH, HIDDEN)
    drafted = [
        torch.where(torch.rand(BATCH, LENGTH - s, 1) < 0.7, right[:, s:], -right[:, s:])
        for s in range(3)
    ]
    result = score(drafted, head[ids], found, weights)
    favourites = (right @ head.T).argmax(-1)
    judged, agreed = [0, 0, 0], [0, 0, 0]
    for row in range(BATCH):
        for start in range(LENGTH):
            for step in range(min(3, LENGTH - start)):
                guess = ids[(drafted[step][row, start] @ head[ids].T).argmax()]
                place = start + step
                if weights[row, place] < 1:
                    break
                judged[step] += 1
                if guess != favourites[row, place]:
                    break
                agreed[step] += 1
    assert result.judged.tolist() == judged
    assert result.agreed.tolist() == agreed
    assert judged[2] > 0


def test_tokens_per_round() -> None:
    assert tokens_per_round([]) == 1
    assert tokens_per_round([0.5, 0.4]) == pytest.approx(1 + 0.5 + 0.2)
