"""What step loops count: a registry each, whose text the front exposes."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from starsd import metrics
from starsd.process.parts import Parts


class LoopStats:
    """The metrics of one loop. Label values come from our own enums."""

    def __init__(self, parts: Parts | None = None) -> None:
        self.parts = parts or Parts()
        self._registry = CollectorRegistry()
        self._registry.register(self.parts)

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        return metrics.counter(self._registry, name, help, labels)

    def gauge(self, name: str, help: str) -> Gauge:
        return metrics.gauge(self._registry, name, help)

    def histogram(self, name: str, help: str, buckets: Sequence[float]) -> Histogram:
        return metrics.histogram(self._registry, name, help, buckets)

    def value(self, name: str, **labels: str) -> float:
        """Current value of one sample; 0 if it was never touched."""
        return self._registry.get_sample_value(name, labels) or 0.0

    def exposition(self) -> bytes:
        return metrics.exposition(self._registry)
