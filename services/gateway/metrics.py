"""What the gateway measures besides its requests."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry

from services.gateway.pool import Pool
from services.gateway.routing import Reason
from starsd.metrics import RequestMetrics, counter, exposition, gauge


class Cause(StrEnum):
    """How a target failed a request."""

    UNREACHABLE = "unreachable"  # before any event
    BROKEN = "broken"  # after the first event
    LOST = "lost"  # its probes have failed for too long
    GARBAGE = "garbage"  # it sent what is no event
    REFUSED = "refused"  # it has no room, or is leaving


class GatewayMetrics:
    """One registry, and everything in it."""

    def __init__(self, pool: Pool) -> None:
        self._registry = CollectorRegistry()
        self.requests = RequestMetrics(self._registry)
        self.failures = counter(
            self._registry, "upstream_failures", "Requests a target failed, by cause.", ["cause"]
        )
        for cause in Cause:
            self.failures.labels(cause)
        self.moved = counter(
            self._registry, "requests_moved", "Requests given to a second target, unbegun."
        )
        self.routed = counter(
            self._registry,
            "requests_routed",
            "Choices of a target, by reason: its session, its prefix, or load alone.",
            ["reason"],
        )
        for reason in Reason:
            self.routed.labels(reason)
        live = gauge(self._registry, "targets_live", "Targets that get requests.")
        live.set_function(lambda: len(pool.live))
        known = gauge(self._registry, "targets_known", "Targets known, live or not.")
        known.set_function(lambda: len(pool.targets))

    def exposition(self) -> bytes:
        return exposition(self._registry)
