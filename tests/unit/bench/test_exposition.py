from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from starsd.bench.exposition import Exposition, less


def test_samples_by_name_and_label() -> None:
    registry = CollectorRegistry()
    by_part = Counter("a:seconds", "s", ["part"], registry=registry)
    by_part.labels("x").inc(1.5)
    by_part.labels("y").inc(2)
    Histogram("a:size", "s", registry=registry).observe(4)
    found = Exposition(generate_latest(registry).decode())
    assert found.labelled("a:seconds_total") == {"x": 1.5, "y": 2}
    assert (found.value("a:size_count"), found.value("a:size_sum")) == (1, 4)
    assert (found.value("absent"), found.labelled("absent")) == (0, {})


def test_what_counters_rose_by() -> None:
    assert less({"a": 3, "new": 2}, {"a": 1}) == {"a": 2, "new": 2}
