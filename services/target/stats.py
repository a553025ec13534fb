"""What the target's step loop counts. Exposed by the front, which gets it as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from starsd.engine.interface import KV_BLOCK
from starsd.process.parts import Parts
from starsd.process.stats import LoopStats

_STEP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class StarStats(LoopStats):
    """Of the conversation with hubs, of rounds, of steps, and of the memory they take."""

    def __init__(self, parts: Parts | None = None) -> None:
        super().__init__(parts)
        self._of_hubs()
        self._of_rounds()
        self._by_source()
        self._of_steps()
        self._of_prefixes()
        self._of_memory()

    def _of_hubs(self) -> None:
        self._replies = self.counter("hub_replies", "Replies from hubs by outcome.", "status")
        self._incompatible = self.counter(
            "hubs_incompatible", "Offers not usable, by reason.", "reason"
        )
        self.breakers_open = self.gauge("hub_breakers_open", "Hubs nobody waits for.")
        self.drafting = self.gauge(
            "drafting",
            "1 if the target asks hubs for proposals; 0 if it is told not to, or its model's state "
            "cannot be rolled back.",
        )

    def _of_rounds(self) -> None:
        self.rounds = self.counter("spec_decode_num_drafts", "Rounds: proposals verified.")
        self._reaching = self.counter(
            "spec_decode_num_drafts_reaching",
            "Proposals verified that had a token at that position.",
            "position",
        )
        self._proposed = self.counter(
            "spec_decode_num_draft_tokens",
            "Proposed tokens verified, by position in the proposal (a tree's depth).",
            "position",
        )
        self._accepted = self.counter(
            "spec_decode_num_accepted_tokens",
            "Accepted tokens, by position in the proposal.",
            "position",
        )
        self._round_seconds = self.counter(
            "round_seconds",
            "Time of rounds answered in time, by part: queue, draft and network of the round trip, "
            "and the step that verified (once for each of its rounds).",
            "part",
        )

    def _by_source(self) -> None:
        self._sources = self.counter(
            "spec_decode_num_drafts_by_source",
            "Proposals verified, by who made them: a hub, the text's own n-grams, a grammar.",
            "source",
        )
        self._accepted_of = self.counter(
            "spec_decode_num_accepted_tokens_by_source",
            "Accepted tokens, by who proposed them.",
            "source",
        )

    def _of_steps(self) -> None:
        self.step_seconds = self.histogram(
            "step_seconds", "Duration of a step, waiting excluded.", _STEP_BUCKETS
        )
        self.wait_seconds = self.counter(
            "proposal_wait_seconds", "Time steps waited for proposals."
        )
        self._foreseen = self.counter(
            "foreseen_rounds",
            "Rounds for which a hub had told what it foresees: taken (verified without asking), "
            "spared (asking promised more), missed (the target said something else).",
            "result",
        )
        self._fallbacks = self.counter(
            "spec_decode_fallbacks",
            "Decode steps of a sequence that went without a proposal, by cause.",
            "cause",
        )
        self.preemptions = self.counter(
            "preemptions",
            "Sequences that lost their KV memory to older ones, and were computed again.",
        )

    def _of_prefixes(self) -> None:
        self.tokens_reused = self.counter(
            "prefix_tokens_reused",
            "Tokens whose keys and values were taken over from another sequence.",
        )
        self.prefix_hits = self.counter(
            "prefix_cache_hits", "Admissions to a slot that found a beginning of their text kept."
        )
        self.prefix_evictions = self.counter(
            "prefix_cache_evicted_blocks",
            "KV blocks of kept prefixes that were given up for others.",
        )
        self._prefix_blocks = self.gauge(
            "prefix_cache_blocks",
            f"KV blocks of {KV_BLOCK} tokens with prefixes of ended requests.",
        )

    def _of_memory(self) -> None:
        self._kv_usage = self.gauge(
            "kv_cache_usage_perc", "Share of KV blocks in use; prefixes of ended requests are not."
        )
        self._kv_used = self.gauge("kv_blocks_used", f"KV blocks of {KV_BLOCK} tokens in use.")
        self._kv_blocks = self.gauge("kv_blocks", "KV blocks that STARSD_KV_MEMORY holds.")

    def reply(self, status: str) -> None:
        self._replies.labels(status).inc()

    def incompatible(self, reason: str) -> None:
        self._incompatible.labels(reason).inc()

    def fallback(self, cause: str) -> None:
        self._fallbacks.labels(cause).inc()

    def foreseen(self, result: Literal["taken", "spared", "missed"], rounds: int = 1) -> None:
        self._foreseen.labels(result).inc(rounds)

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
