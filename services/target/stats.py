"""What the target's step loop counts. Exposed by the front, which gets it as text."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from starsd.engine.interface import KV_BLOCK
from starsd.process.parts import Parts

_STEP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class StarStats:
    """Counters of one loop, in a registry of their own. Label values come from our own enums."""

    def __init__(self, parts: Parts | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        self.parts = parts or Parts()
        registry.register(self.parts)
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
        self._reaching = Counter(
            "starsd:spec_decode_num_drafts_reaching",
            "Proposals verified that had a token at that position.",
            ["position"],
            registry=registry,
        )
        self._proposed = Counter(
            "starsd:spec_decode_num_draft_tokens",
            "Proposed tokens verified, by position in the proposal (a tree's depth).",
            ["position"],
            registry=registry,
        )
        self._accepted = Counter(
            "starsd:spec_decode_num_accepted_tokens",
            "Accepted tokens, by position in the proposal.",
            ["position"],
            registry=registry,
        )
        self._sources = Counter(
            "starsd:spec_decode_num_drafts_by_source",
            "Proposals verified, by who made them: a hub, the text's own n-grams, a grammar.",
            ["source"],
            registry=registry,
        )
        self._accepted_of = Counter(
            "starsd:spec_decode_num_accepted_tokens_by_source",
            "Accepted tokens, by who proposed them.",
            ["source"],
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
        self.preemptions = Counter(
            "starsd:preemptions",
            "Sequences that lost their KV memory to older ones, and were computed again.",
            registry=registry,
        )
        self.tokens_reused = Counter(
            "starsd:prefix_tokens_reused",
            "Tokens whose keys and values were taken over from another sequence.",
            registry=registry,
        )
        self.prefix_hits = Counter(
            "starsd:prefix_cache_hits",
            "Admissions to a slot that found a beginning of their text kept.",
            registry=registry,
        )
        self.prefix_evictions = Counter(
            "starsd:prefix_cache_evicted_blocks",
            "KV blocks of kept prefixes that were given up for others.",
            registry=registry,
        )
        self._prefix_blocks = Gauge(
            "starsd:prefix_cache_blocks",
            f"KV blocks of {KV_BLOCK} tokens with prefixes of ended requests.",
            registry=registry,
        )
        self._kv_usage = Gauge(
            "starsd:kv_cache_usage_perc",
            "Share of KV blocks in use; prefixes of ended requests are not.",
            registry=registry,
        )
        self._kv_used = Gauge(
            "starsd:kv_blocks_used", f"KV blocks of {KV_BLOCK} tokens in use.", registry=registry
        )
        self._kv_blocks = Gauge(
            "starsd:kv_blocks", "KV blocks that STARSD_KV_MEMORY holds.", registry=registry
        )
        self.drafting = Gauge(
            "starsd:drafting",
            "1 if the target asks hubs for proposals; 0 if it is told not to, or its model's state "
            "cannot be rolled back.",
            registry=registry,
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

    def kv(self, used: int, kept: int, blocks: int) -> None:
        self._kv_usage.set(used / blocks)
        self._kv_used.set(used)
        self._prefix_blocks.set(kept)
        self._kv_blocks.set(blocks)

    def round(self, levels: Sequence[int], accepted: int, source: str) -> None:
        """One verified proposal, of so many tokens at each depth."""
        self.rounds.inc()
        for position, proposed in enumerate(levels):
            self._reaching.labels(position).inc()
            self._proposed.labels(position).inc(proposed)
        for position in range(accepted):
            self._accepted.labels(position).inc()
        self._sources.labels(source).inc()
        self._accepted_of.labels(source).inc(accepted)

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
