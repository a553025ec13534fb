"""The noise is really shared: a drafter with the target's own distribution guesses every token."""

from __future__ import annotations

from pathlib import Path

import pytest

from starsd.engine.interface import Runner
from tests.identity.support import draft_runner, make_requests
from tests.identity.test_matrix import STAR, acceptance
from tests.ministar import MiniStar


@pytest.fixture(scope="module")
def twin(tiny_model: Path) -> Runner:
    """The target's weights at the hub, batch-invariant, so that its logits are the target's."""
    return draft_runner(tiny_model, "self", batch_invariant=True)


def self_acceptance(targets: list[Runner], twin: Runner, candidates: int, count: int = 48) -> float:
    requests = make_requests(count, 1.0)
    with MiniStar(
        targets, twin, target={**STAR, "max_waiting": count}, draft={"draft_candidates": candidates}
    ) as star:
        return acceptance(star.run(requests))


def test_self_draft_over_all_candidates_is_always_right(
    targets: list[Runner], twin: Runner
) -> None:
    assert self_acceptance(targets, twin, candidates=0) >= 0.999


def test_few_candidates_cost_acceptance(
    targets: list[Runner], twin: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default is printed; two candidates show that the option does something."""
    default, two = (self_acceptance(targets, twin, candidates) for candidates in (64, 2))
    with capsys.disabled():
        print(f"\nself-draft acceptance at temperature 1: {default:.4f} with 64 candidates")
    assert two < 0.9 < default
