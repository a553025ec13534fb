"""What the hub's loop counts. Exposed by the front, which gets it as text."""

from __future__ import annotations

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from starsd.drafters.ahead import Ahead
from starsd.engine.interface import KV_BLOCK
from starsd.process.parts import Parts

_WAIT_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)


class HubStats:
    """Counters of one hub, in a registry of their own."""

    def __init__(self, parts: Parts | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        self.parts = parts or Parts()
        registry.register(self.parts)
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
        self._foreseen = Counter(
            "starsd:hub_run_ahead_jobs",
            "Jobs that run-ahead met: hit (answered at once), part (its beginning was there), "
            "spared (there, but drafting anew is better), miss.",
            ["result"],
            registry=registry,
        )
        self._ahead_tokens = Counter(
            "starsd:hub_run_ahead_tokens",
            "Tokens computed in idle time: used in proposals, or wasted.",
            ["fate"],
            registry=registry,
        )
        self.ahead_seconds = Counter(
            "starsd:hub_run_ahead_seconds",
            "Idle time in which the draft model ran ahead.",
            registry=registry,
        )
        self.evicted = Counter(
            "starsd:hub_evictions", "Idle sequences that made room for others.", registry=registry
        )
        self.queue_seconds = Histogram(
            "starsd:hub_queue_seconds",
            "From a job's being sent until the draft model computes for it.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.service_seconds = Histogram(
            "starsd:hub_service_seconds",
            "From then to its reply.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.batch = Histogram(
            "starsd:hub_batch_size",
            "Sequences in one step.",
            buckets=_BATCH_BUCKETS,
            registry=registry,
        )
        self.batch_limit = Gauge(
            "starsd:hub_batch_limit",
            "Tokens a step may take while that makes the hub faster.",
            registry=registry,
        )
        self.sessions = Gauge("starsd:hub_sessions", "Targets greeted.", registry=registry)
        self.slots_used = Gauge("starsd:hub_slots_used", "KV slots in use.", registry=registry)
        self.kv_used = Gauge(
            "starsd:kv_blocks_used", f"KV blocks of {KV_BLOCK} tokens in use.", registry=registry
        )
        self.kv_blocks = Gauge(
            "starsd:kv_blocks", "KV blocks that STARSD_KV_MEMORY holds.", registry=registry
        )

    def answer(self, status: str) -> None:
        self._answers.labels(status).inc()

    def foreseen(self, result: Literal["hit", "part", "spared", "miss"]) -> None:
        self._foreseen.labels(result).inc()

    def ran_ahead(self, ahead: Ahead | None, used: int = 0) -> None:
        """Its sequence needs it no more; so many tokens of it were proposed."""
        if ahead is not None:
            used = min(used, ahead.spent)
            self._ahead_tokens.labels("used").inc(used)
            self._ahead_tokens.labels("wasted").inc(ahead.spent - used)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
