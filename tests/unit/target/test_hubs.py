from __future__ import annotations

import pytest

from services.target.hubs import Breaker, Hub, Hubs
from starsd.protocol.messages import Limits
from tests.unit.target.recording import make_pod


def make_hub(pod_id: str = "hub") -> Hub:
    return Hub(make_pod(pod_id), Breaker(misses=3, probe_interval_s=0.5), Limits(max_depth=8))


def test_breaker_opens_after_misses_in_a_row_only() -> None:
    hub = make_hub()
    hub.step(late=True)
    hub.step(late=True)
    hub.answered = True
    hub.step(late=True)
    hub.step(late=True)
    assert not hub.breaker.open
    hub.step(late=True)
    hub.step(late=True)
    assert hub.breaker.open


def test_step_with_nothing_due_is_no_miss() -> None:
    hub = make_hub()
    for _ in range(10):
        hub.step(late=False)
    assert not hub.breaker.open


def test_open_breaker_lets_single_probes_through() -> None:
    breaker = Breaker(misses=1, probe_interval_s=0.5)
    breaker.miss()
    sent = [breaker.may_send(now / 10, depth=4) for now in range(1, 12)]
    assert sent == [True] + [False] * 4 + [True] + [False] * 4 + [True]


def test_timely_answer_to_a_probe_closes() -> None:
    hub = make_hub()
    for _ in range(3):
        hub.step(late=True)
    hub.answered = True
    hub.step(late=False)
    assert not hub.breaker.open


def test_trip_grows_with_the_levels_by_what_drafting_takes() -> None:
    hub = make_hub()
    assert hub.trip_s(8) == 0
    hub.observe(0.012, service_s=0.008, levels=4)
    assert hub.trip_s(4) == pytest.approx(0.012)
    assert hub.trip_s(1) == pytest.approx(0.006)


def test_service_of_which_a_hub_boasts_or_moans_counts_as_far_as_it_fits() -> None:
    hub = make_hub()
    hub.observe(0.01, service_s=5.0, levels=2)
    assert hub.trip_s(2) == pytest.approx(0.01)


def test_what_had_much_to_read_first_counts_only_if_it_was_quick() -> None:
    hub = make_hub()
    hub.observe(0.1, 0.1, 4, current=False)
    assert hub.trip_s(4) == 0
    hub.observe(0.012, 0.008, 4)
    hub.observe(0.1, 0.1, 4, current=False)
    assert hub.trip_s(4) == pytest.approx(0.012)
    hub.observe(0.006, 0.004, 4, current=False)
    assert hub.trip_s(4) < 0.012


def test_trip_follows_what_is_observed() -> None:
    hub = make_hub()
    hub.observe(1.0, 0.5, 4)
    for _ in range(40):
        hub.observe(0.1, 0.05, 4)
    assert abs(hub.trip_s(4) - 0.1) < 0.01


def test_best_offer_counts_usable_hubs_only() -> None:
    hubs = Hubs({"a": make_hub("a")})
    assert hubs.best_offer() == hubs.known["a"].pod.offer
    hubs.known["a"].refused = True
    assert hubs.best_offer() is None


def test_prefix_job_leaves_the_turn_of_a_probe_to_the_job_that_drafts() -> None:
    breaker = Breaker(misses=1, probe_interval_s=0.5)
    breaker.miss()
    assert breaker.may_send(1.0, depth=0)
    assert breaker.may_send(1.1, depth=4)
    assert not breaker.may_send(1.2, depth=0)
    assert not breaker.may_send(1.2, depth=4)
