"""After the forward: each row's logits verify its proposal, and what is committed is kept."""

from __future__ import annotations

from services.target.features import Features
from services.target.guess import NOTHING
from services.target.sequence import Emission, Sequence
from services.target.star import Star
from services.target.stats import StarStats
from starsd.engine.interface import Features as Rows
from starsd.engine.interface import Logits, Row, Runner
from starsd.sampling.logprobs import logprobs
from starsd.sampling.verification import verify
from starsd.settings.target import TargetSettings


class Verifier:
    """Takes sequences forward by what the target itself samples."""

    def __init__(
        self,
        runner: Runner,
        star: Star,
        settings: TargetSettings,
        stats: StarStats,
        features: Features,
    ) -> None:
        self._runner = runner
        self._star = star
        self._settings = settings
        self._stats = stats
        self._features = features

    def advance(
        self, sequence: Sequence, row: Row, logits: Logits, seen: Rows | None
    ) -> Emission | None:
        """Verify one row's logits ``[want, vocab]``; None while the prompt is being prefilled. Of
        the hidden states ``seen`` those of committed positions are kept."""
        if not row.want:
            sequence.cached += len(row.tokens)
            self._features.keep(row.slot, row.start, seen)
            return None
        proposal, sequence.proposal = sequence.proposal, NOTHING
        if sequence.decoding and not proposal:
            self._count_fallback(sequence)
        length = len(sequence.tokens)
        with self._stats.parts.sampling:
            sampled = verify(
                logits,
                proposal.tokens,
                sequence.sampling,
                length,
                sequence.tokens,
                sequence.allowed,
                parents=proposal.parents,
            )
        nodes = proposal.path(sampled)
        path = [0, *(1 + node for node in nodes)]
        if row.parents is not None:
            self._runner.compact(row.slot, row.start, path)
            seen = seen if seen is None else seen[path]
        emission = sequence.accept(sampled, proposal)
        if sequence.logprobs is not None:
            emission = _with_logprobs(emission, logits[path], sequence.logprobs)
        self._features.keep(row.slot, row.start, seen, sequence.cached)
        if proposal:
            accepted = min(len(emission.tokens), len(sampled) - 1)
            self._stats.round(proposal.levels, accepted, proposal.source)
            self._star.verified(sequence, proposal, nodes)
        return emission

    def _count_fallback(self, sequence: Sequence) -> None:
        drafting = self._settings.drafting and self._settings.draft_depth and sequence.speculates
        if drafting and sequence.room > 1:
            sequence.fallbacks += 1
            self._stats.fallback(sequence.star.miss)


def _with_logprobs(emission: Emission, rows: Logits, count: int) -> Emission:
    """``rows`` are the logits each token was sampled from, and perhaps more."""
    found = [logprobs(row, token, count) for row, token in zip(rows, emission.tokens, strict=False)]
    return emission._replace(logprobs=found)
