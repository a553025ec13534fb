"""What the target's step loop counts. Exposed by the front, which gets it as text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_STEP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class StarStats:
    """Counters of one loop, in a registry of their own. Label values come from our own enums."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._replies = Counter(
            "starsd:hub_replies", "Replies from hubs by outcome.", ["status"], registry=registry
        )
        self._incompatible = Counter(
            "starsd:hubs_incompatible",
            "Offers not usable, by reason.",
            ["reason"],
            registry=registry,
        )
        self.rounds = Counter(
            "starsd:spec_decode_num_drafts", "Rounds: proposals verified.", registry=registry
        )
        self._proposed = Counter(
            "starsd:spec_decode_num_draft_tokens",
            "Proposed tokens verified, by position in the proposal.",
            ["position"],
            registry=registry,
        )
        self._accepted = Counter(
            "starsd:spec_decode_num_accepted_tokens",
            "Accepted tokens, by position in the proposal.",
            ["position"],
            registry=registry,
        )
        self._fallbacks = Counter(
            "starsd:spec_decode_fallbacks",
            "Decode steps of a sequence that went without a proposal, by cause.",
            ["cause"],
            registry=registry,
        )
        self._round_seconds = Counter(
            "starsd:round_seconds",
            "Time of rounds answered in time, by part: queue, draft and network of the round trip, "
            "and the step that verified (once for each of its rounds).",
            ["part"],
            registry=registry,
        )
        self.step_seconds = Histogram(
            "starsd:step_seconds",
            "Duration of a step, waiting excluded.",
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self.wait_seconds = Counter(
            "starsd:proposal_wait_seconds", "Time steps waited for proposals.", registry=registry
        )
        self.slots_usage = Gauge(
            "starsd:kv_cache_usage_perc", "Share of KV slots in use.", registry=registry
        )
        self.breakers_open = Gauge(
            "starsd:hub_breakers_open", "Hubs nobody waits for.", registry=registry
        )

    def reply(self, status: str) -> None:
        self._replies.labels(status).inc()

    def incompatible(self, reason: str) -> None:
        self._incompatible.labels(reason).inc()

    def fallback(self, cause: str) -> None:
        self._fallbacks.labels(cause).inc()

    def round(self, proposed: int, accepted: int) -> None:
        """One verified proposal."""
        self.rounds.inc()
        for position in range(proposed):
            self._proposed.labels(position).inc()
        for position in range(accepted):
            self._accepted.labels(position).inc()

    def round_trip(self, trip_s: float, queue_us: int, draft_us: int) -> None:
        """One answered round, by our clock; what the hub says of it counts only as far as it fits.

        Its drafting time is exact and goes first; Redis dates the start of queueing to 1 ms.
        """
        draft_s = min(draft_us / 1e6, trip_s)
        queue_s = min(queue_us / 1e6, trip_s - draft_s)
        self._round_seconds.labels("draft").inc(draft_s)
        self._round_seconds.labels("queue").inc(queue_s)
        self._round_seconds.labels("network").inc(trip_s - draft_s - queue_s)

    def verified(self, rounds: int, step_s: float) -> None:
        """A step that verified so many proposals is over."""
        self._round_seconds.labels("verify").inc(rounds * step_s)

    def value(self, name: str, **labels: str) -> float:
        """Current value of one sample; 0 if it was never touched."""
        return self._registry.get_sample_value(name, labels) or 0.0

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
