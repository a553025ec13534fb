"""Invariant 2, on a simulated clock: what proposals can cost, and that steps stay whole."""

from __future__ import annotations

import pytest

from tests.identity.scripted_star import (
    draft_runner,
    make_requests,
    make_star,
    plain_tokens,
    target_runner,
    tokens,
)
from tests.identity.test_adversaries import silence, twisted
from tests.ministar import TARGET_STEP_S, MiniStar

TOKENS = 40


def elapsed(star: MiniStar, count: int = 4) -> float:
    """Simulated seconds until ``count`` requests on one target are answered, prefill included."""
    requests = make_requests(count, max_tokens=TOKENS)
    began = star.clock.now
    assert tokens(star.run(requests)) == plain_tokens(requests)
    return star.clock.now - began


@pytest.fixture(scope="module")
def plain_s() -> float:
    with MiniStar([target_runner()], target={"drafting": False}) as star:
        return elapsed(star)


def test_good_draft_needs_fewer_steps(plain_s: float) -> None:
    with make_star(1, target={}) as star:
        assert elapsed(star) < 0.8 * plain_s


def test_silent_hub_costs_three_budgets_and_then_nothing(plain_s: float) -> None:
    """The breaker opens after three late steps; probes never wait."""
    with make_star(1, target={}, draft_step_s=0.0, bus_type=twisted(silence)) as star:
        took = elapsed(star)
    assert took <= plain_s + 3 * TARGET_STEP_S + 1e-9


def test_hub_slower_than_the_budget_is_not_waited_for(plain_s: float) -> None:
    with make_star(1, target={}, draft_step_s=5 * TARGET_STEP_S) as star:
        # The hub runs beside the target; here it shares its clock, so count waits instead.
        elapsed(star)
        waited = star.pods[0].metric("starsd:proposal_wait_seconds_total")
    assert waited <= 3 * (5 * TARGET_STEP_S)


def test_budget_of_zero_never_waits() -> None:
    with make_star(1, target={"wait_budget": 0.0}) as star:
        elapsed(star)
        assert star.pods[0].metric("starsd:proposal_wait_seconds_total") == 0.0


@pytest.mark.parametrize("keep", [False, True], ids=["empty again", "kept"])
def test_dead_redis_costs_nothing_and_proposals_resume(keep: bool) -> None:
    requests = make_requests(4, max_tokens=200)
    with make_star(1) as star:
        steps = iter(range(10**6))

        def fail() -> None:
            step = next(steps)
            if step == 5:
                star.broker.stop(keep=keep)
            if step == 30:
                star.broker.start()

        star.on_step = fail
        star.run(requests[:2])
        before = star.pods[0].metric("starsd:spec_decode_num_drafts_total")
        star.announce([])
        star.kill_hub()
        star.start_hub(draft_runner(), boot="h2")
        answers = star.run(requests[2:])
        after = star.pods[0].metric("starsd:spec_decode_num_drafts_total")
    assert tokens(answers) == plain_tokens(requests)[2:]
    assert after > before + 10


def test_killed_hub_changes_no_text_and_its_successor_drafts() -> None:
    requests = make_requests(4, max_tokens=200)
    with make_star(1) as star:
        steps = iter(range(10**6))

        def kill() -> None:
            step = next(steps)
            if step == 5:
                star.kill_hub()
            if step == 20:
                star.start_hub(draft_runner(), boot="h2")

        star.on_step = kill
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert all(answer.stats.rounds > 5 for answer in answers)
    fallbacks = sum(answer.stats.fallbacks for answer in answers)
    assert fallbacks > 10


def test_sequences_do_not_split_into_cohorts() -> None:
    """With a flat step cost every decode step carries every decoding sequence."""
    requests = make_requests(8, max_tokens=60)
    with make_star(1, draft_step_s=TARGET_STEP_S / 10) as star:
        batches: list[int] = []
        runner = star.pods[0].runner
        forward = runner.forward

        def counted(rows: object) -> object:
            batches.append(len(rows))  # type: ignore[arg-type]
            return forward(rows)  # type: ignore[arg-type]

        runner.forward = counted  # type: ignore[method-assign, assignment]
        answers = star.run(requests)
    steps = max(answer.stats.rounds + answer.stats.fallbacks for answer in answers)
    assert len(batches) <= steps + 3
    full = [size for size in batches[: min(a.stats.rounds for a in answers)] if size == 8]
    assert len(full) >= 5
