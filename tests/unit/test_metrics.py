"""Shared request metrics: names, and what one request adds to them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from starsd.metrics import Outcome, RequestClock, RequestMetrics, exposition


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"starsd:{name}", labels)


def test_outcomes_are_there_from_the_start(registry: CollectorRegistry) -> None:
    RequestMetrics(registry)
    for outcome in Outcome:
        assert value(registry, "requests_total", outcome=outcome) == 0
    assert b'starsd:requests_total{outcome="ok"} 0.0' in exposition(registry)


def test_a_request_is_measured_once(registry: CollectorRegistry) -> None:
    clock = RequestClock(RequestMetrics(registry))
    assert value(registry, "num_requests_running") == 1
    clock.admitted()
    for count in (1, 0, 3):
        clock.tokens(count)
    clock.end(Outcome.OK, prompt_tokens=9)
    assert value(registry, "num_requests_running") == 0
    assert value(registry, "requests_total", outcome="ok") == 1
    assert value(registry, "generation_tokens_total") == 4
    assert value(registry, "prompt_tokens_total") == 9
    counts = {"request_queue_time": 1, "time_to_first_token": 1, "e2e_request_latency": 1}
    counts |= {"time_per_output_token": 1, "inter_token_latency": 3}
    for name, count in counts.items():
        assert value(registry, f"{name}_seconds_count") == count, name


def test_g12_itl_divides_a_gap_over_its_tokens(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens at 1, 4 (three of them) and 10 s: gaps 1, 1, 1 and 6; TPOT 9 / 4."""
    now = [0.0]
    monkeypatch.setattr("starsd.metrics.time.monotonic", lambda: now[0])
    clock = RequestClock(RequestMetrics(registry))
    for at, count in ((1.0, 1), (4.0, 3), (10.0, 1)):
        now[0] = at
        clock.tokens(count)
    clock.end(Outcome.OK)
    assert value(registry, "inter_token_latency_seconds_sum") == pytest.approx(9)
    assert value(registry, "time_per_output_token_seconds_sum") == pytest.approx(9 / 4)
    assert value(registry, "time_to_first_token_seconds_sum") == 1


def test_times_per_token_are_those_of_one_choice(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two choices give a token each at 1, 2 and 3 s: a token a second."""
    now = [0.0]
    monkeypatch.setattr("starsd.metrics.time.monotonic", lambda: now[0])
    clock = RequestClock(RequestMetrics(registry), choices=2)
    for at in (1.0, 2.0, 3.0):
        now[0] = at
        clock.tokens(2)
    clock.end(Outcome.OK)
    assert value(registry, "time_per_output_token_seconds_sum") == pytest.approx(1)
    assert value(registry, "inter_token_latency_seconds_count") == 4
    assert value(registry, "inter_token_latency_seconds_sum") == pytest.approx(4)


def test_a_request_without_tokens_has_no_token_times(registry: CollectorRegistry) -> None:
    RequestClock(RequestMetrics(registry)).end(Outcome.CANCELLED)
    assert value(registry, "time_to_first_token_seconds_count") == 0
    assert value(registry, "time_per_output_token_seconds_count") == 0
    assert value(registry, "requests_total", outcome="cancelled") == 1
