"""Prometheus metrics every service shares: vLLM's names and buckets under our prefix.

Each process owns one ``CollectorRegistry`` and passes it down; nothing is registered globally.
Label values come from enums only, so every label set is bounded.

Sources: vLLM ``vllm/v1/metrics/loggers.py`` (names, buckets). Inter-token latency is the gap
between two events of a stream divided over the tokens of the second, since one event may carry
several; time per output token is (last - first) / (completion tokens - 1) of a whole request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from starsd.errors import ErrorBody

PREFIX = "starsd:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0),
    *(7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    REJECTED = "rejected"  # the client's error, or no room: 4xx
    ERROR = "error"  # ours: 5xx, also when it came after the headers
    CANCELLED = "cancelled"  # the client left


def outcome_of(error: ErrorBody) -> Outcome:
    ours = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Outcome.ERROR if ours else Outcome.REJECTED


def counter(
    registry: CollectorRegistry, name: str, help: str, labels: Sequence[str] = ()
) -> Counter:
    """``starsd:<name>_total``."""
    return Counter(PREFIX + name, help, labels, registry=registry)


def gauge(registry: CollectorRegistry, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(PREFIX + name, help, labels, registry=registry)


def histogram(
    registry: CollectorRegistry, name: str, help: str, buckets: Sequence[float]
) -> Histogram:
    return Histogram(PREFIX + name, help, buckets=buckets, registry=registry)


def exposition(registry: CollectorRegistry) -> bytes:
    """The registry as Prometheus text."""
    return generate_latest(registry)


class RequestMetrics:
    """What a service that answers requests measures of each of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = counter(registry, "requests", "Requests by outcome.", ["outcome"])
        for outcome in Outcome:
            self._requests.labels(outcome)
        self.running = gauge(registry, "num_requests_running", "Requests being answered now.")
        self.queue = histogram(
            registry, "request_queue_time_seconds", "Wait until a slot was free.", REQUEST_BUCKETS
        )
        self.ttft = histogram(
            registry, "time_to_first_token_seconds", "Arrival to first token.", TTFT_BUCKETS
        )
        self.tpot = histogram(
            registry,
            "time_per_output_token_seconds",
            "(Last - first token) / (completion tokens - 1), one value a request.",
            TOKEN_BUCKETS,
        )
        self.itl = histogram(
            registry,
            "inter_token_latency_seconds",
            "Gap between stream events / tokens in the later, one value a token.",
            TOKEN_BUCKETS,
        )
        self.e2e = histogram(
            registry, "e2e_request_latency_seconds", "Arrival to end.", REQUEST_BUCKETS
        )
        self.prompt_tokens = counter(registry, "prompt_tokens", "Prompt tokens of ended requests.")
        self.generation_tokens = counter(registry, "generation_tokens", "Tokens generated.")

    def ended(self, outcome: Outcome) -> None:
        """Count a request that ended (or never began) this way."""
        self._requests.labels(outcome).inc()


class RequestClock:
    """Times one request, from construction to exactly one ``end``. Times per token are those of
    one of its ``choices``, which come side by side."""

    def __init__(self, metrics: RequestMetrics, choices: int = 1) -> None:
        self._metrics = metrics
        self._choices = choices
        self._start = time.monotonic()
        self._first: float | None = None
        self._last = self._start
        self._tokens = 0
        metrics.running.inc()

    def admitted(self) -> None:
        """The request left the queue."""
        self._metrics.queue.observe(time.monotonic() - self._start)

    def tokens(self, count: int) -> None:
        """``count`` tokens arrived together."""
        if not count:
            return
        now = time.monotonic()
        self._tokens += count
        self._metrics.generation_tokens.inc(count)
        if self._first is None:
            self._first = now
            self._metrics.ttft.observe(now - self._start)
        else:
            for _ in range(count):
                self._metrics.itl.observe(self._choices * (now - self._last) / count)
        self._last = now

    def end(self, outcome: Outcome, prompt_tokens: int = 0) -> None:
        self._metrics.running.dec()
        self._metrics.ended(outcome)
        self._metrics.e2e.observe(time.monotonic() - self._start)
        self._metrics.prompt_tokens.inc(prompt_tokens)
        if self._first is not None and self._tokens > self._choices:
            took_s, further = self._last - self._first, self._tokens - self._choices
            self._metrics.tpot.observe(self._choices * took_s / further)
