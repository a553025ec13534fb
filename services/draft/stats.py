"""What the hub's loop counts. Exposed by the front, which gets it as text."""

from __future__ import annotations

from typing import Literal

from starsd.drafters.ahead import Ahead
from starsd.engine.interface import KV_BLOCK
from starsd.process.parts import Parts
from starsd.process.stats import LoopStats

_WAIT_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)

Met = Literal["hit", "part", "spared", "taken", "miss"]


class HubStats(LoopStats):
    """Of jobs, of the draft model's steps, of its idle time, and of the memory it takes."""

    def __init__(self, parts: Parts | None = None) -> None:
        super().__init__(parts)
        self._of_jobs()
        self._of_steps()
        self._of_idle_time()
        self._of_memory()

    def _of_jobs(self) -> None:
        self._answers = self.counter("hub_jobs", "Jobs answered, by status.", "status")
        self.superseded = self.counter("hub_jobs_superseded", "Jobs overtaken by a newer round.")
        self.duplicates = self.counter("hub_jobs_duplicate", "Jobs delivered again.")
        self.bad = self.counter("hub_entries_bad", "Entries dead-lettered.")
        self.queue_seconds = self.histogram(
            "hub_queue_seconds",
            "From a job's being sent until the draft model computes for it.",
            _WAIT_BUCKETS,
        )
        self.service_seconds = self.histogram(
            "hub_service_seconds", "From then to its reply.", _WAIT_BUCKETS
        )

    def _of_steps(self) -> None:
        self.busy_seconds = self.counter("hub_busy_seconds", "Time the draft model computed.")
        self.drafted = self.counter("hub_draft_tokens", "Tokens drafted.")
        self.batch = self.histogram("hub_batch_size", "Sequences in one step.", _BATCH_BUCKETS)
        self.batch_limit = self.gauge(
            "hub_batch_limit", "Tokens a step may take while that makes the hub faster."
        )

    def _of_idle_time(self) -> None:
        self.idle_seconds = self.counter("hub_idle_seconds", "Time the hub waited for work.")
        self.ahead_seconds = self.counter(
            "hub_run_ahead_seconds", "Idle time in which the draft model ran ahead."
        )
        self._foreseen = self.counter(
            "hub_run_ahead_jobs",
            "Jobs that run-ahead met: hit (answered at once), part (its beginning was there), "
            "spared (there, but drafting anew is better), taken (its target had been told, and "
            "asked for nothing), miss.",
            "result",
        )
        self._ahead_tokens = self.counter(
            "hub_run_ahead_tokens",
            "Tokens computed in idle time: used in proposals, or wasted.",
            "fate",
        )

    def _of_memory(self) -> None:
        self.sessions = self.gauge("hub_sessions", "Targets greeted.")
        self.slots_used = self.gauge("hub_slots_used", "KV slots in use.")
        self.kv_used = self.gauge("kv_blocks_used", f"KV blocks of {KV_BLOCK} tokens in use.")
        self.kv_blocks = self.gauge("kv_blocks", "KV blocks that STARSD_KV_MEMORY holds.")
        self.evicted = self.counter("hub_evictions", "Idle sequences that made room for others.")

    def answer(self, status: str) -> None:
        self._answers.labels(status).inc()

    def foreseen(self, result: Met) -> None:
        self._foreseen.labels(result).inc()

    def ran_ahead(self, ahead: Ahead | None, used: int = 0) -> None:
        """Its sequence needs it no more; so many tokens of it were proposed."""
        if ahead is not None:
            used = min(used, ahead.spent)
            self._ahead_tokens.labels("used").inc(used)
            self._ahead_tokens.labels("wasted").inc(ahead.spent - used)
