"""What the hub's loop counts. Exposed by the front, which gets it as text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_WAIT_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)


class HubStats:
    """Counters of one hub, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.busy_seconds = Counter(
            "starsd:hub_busy_seconds", "Time the draft model computed.", registry=registry
        )
        self.idle_seconds = Counter(
            "starsd:hub_idle_seconds", "Time the hub waited for work.", registry=registry
        )
        self._answers = Counter(
            "starsd:hub_jobs", "Jobs answered, by status.", ["status"], registry=registry
        )
        self.superseded = Counter(
            "starsd:hub_jobs_superseded", "Jobs overtaken by a newer round.", registry=registry
        )
        self.duplicates = Counter(
            "starsd:hub_jobs_duplicate", "Jobs delivered again.", registry=registry
        )
        self.bad = Counter("starsd:hub_entries_bad", "Entries dead-lettered.", registry=registry)
        self.drafted = Counter("starsd:hub_draft_tokens", "Tokens drafted.", registry=registry)
        self.evicted = Counter(
            "starsd:hub_evictions", "Sequences that lost their slot to others.", registry=registry
        )
        self.queue_seconds = Histogram(
            "starsd:hub_queue_seconds",
            "Age of a job when taken.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.service_seconds = Histogram(
            "starsd:hub_service_seconds",
            "From taking a job to its reply.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.batch = Histogram(
            "starsd:hub_batch_size",
            "Sequences in one step.",
            buckets=_BATCH_BUCKETS,
            registry=registry,
        )
        self.sessions = Gauge("starsd:hub_sessions", "Targets greeted.", registry=registry)
        self.slots_used = Gauge("starsd:hub_slots_used", "KV slots in use.", registry=registry)

    def answer(self, status: str) -> None:
        self._answers.labels(status).inc()

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
