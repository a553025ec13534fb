"""When two engines may rightly disagree on a token: logits that differ in their last digits.

Used by ``starsd check identity`` and the tests to excuse a first divergence, judged on the logits
of a teacher-forced reference. The sampler itself never looks here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.noise import Floats, Ids, exponential_noise
from starsd.sampling.processing import Candidates, Logits, adjusted, min_p, tempered, top_k, top_p
from starsd.sampling.sampler import perturb

NEAR = 1e-3
"""The project's bound, on the scale of the race's scores (greedy: of the logits)."""


def perturbed_scores(
    logits: Logits,
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    tokens: Sequence[int],
) -> Floats:
    """Scores in the race of some tokens, before top-k, top-p and min-p: ``[len(tokens)]``.

    ``logits`` is ``[vocabulary]``. Greedy: their logits, penalties and bias applied. -inf for a
    token that cannot be chosen. Raises EngineError as the pipeline does.
    """
    scores = adjusted(logits, params, history)
    ids = np.asarray(tokens, dtype=np.int64)
    if params.greedy:
        return scores[ids].astype(np.float64)
    noise = exponential_noise(params.seed, position, ids)
    kept = tempered(scores, params.temperature)
    return perturb(_scores_of(kept, len(logits), ids), noise)


def near_edge(
    logits: Logits, params: SamplingParams, history: Sequence[int], token: int, eps: float = NEAR
) -> bool:
    """Whether ``eps`` decides if the token passes top-k, top-p and min-p."""
    return _passes(logits, params, history, token, eps) and not _passes(
        logits, params, history, token, -eps
    )


def near_tie(
    logits: Logits,
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    first: int,
    second: int,
    eps: float = NEAR,
) -> bool:
    """Whether rounding explains that one engine took ``first`` and the other ``second`` here.

    Each must be able to win against the other: to pass the filters with ``eps`` in its favour, and
    to come within ``eps`` of the other's score unless the other may fail the filters. A token
    outside the vocabulary never ties.
    """
    if not all(0 <= token < len(logits) for token in (first, second)):
        return False
    a, b = perturbed_scores(logits, params, position, history, (first, second))
    could_pass = [_passes(logits, params, history, token, eps) for token in (first, second)]
    must_pass = [_passes(logits, params, history, token, -eps) for token in (first, second)]
    first_wins = could_pass[0] and (a >= b - eps or not must_pass[1])
    second_wins = could_pass[1] and (b >= a - eps or not must_pass[0])
    return bool(first_wins and second_wins)


def _scores_of(kept: Candidates, vocab_size: int, ids: Ids) -> Floats:
    scores = np.full(vocab_size, -np.inf)
    scores[kept.ids] = kept.scores
    return scores[ids]


def _passes(
    logits: Logits, params: SamplingParams, history: Sequence[int], token: int, favour: float
) -> bool:
    """Whether the token survives with its score, and the nucleus, moved by ``favour``."""
    if params.greedy:
        return True
    kept = tempered(adjusted(logits, params, history), params.temperature)
    kept = top_k(Candidates(kept.ids, kept.scores + favour * (kept.ids == token)), params.top_k)
    if params.top_p < 1.0:
        kept = top_p(kept, max(params.top_p + favour, 0.0))
    return token in min_p(kept, params.min_p).ids
