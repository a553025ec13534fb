"""From logits to the candidates of the race, in one fixed order.

Penalties, bias, grammar mask, temperature, top-k, top-p, min-p. float64 from the first change on;
every step keeps candidates in ascending id order and breaks ties to the lower id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from starsd.errors import EngineError, RequestError
from starsd.protocol.sampling import Penalties, SamplingParams
from starsd.sampling.noise import Floats, Ids

Logits = npt.NDArray[np.float32] | Floats
Mask = npt.NDArray[np.bool_]
"""[vocabulary]: True where a token is allowed."""


class Candidates(NamedTuple):
    """Tokens still in the race, ids ascending, with their scores logit / temperature."""

    ids: Ids
    scores: Floats

    def only(self, index: Ids | Mask) -> Candidates:
        """Those at ``index``, which keeps the order."""
        return Candidates(self.ids[index], self.scores[index])


def candidates(
    logits: Logits, params: SamplingParams, history: Sequence[int], allowed: Mask | None = None
) -> Candidates:
    """What survives the whole pipeline; never empty. For sampled decoding, not greedy.

    ``logits`` is ``[vocabulary]``; ``history`` is prompt and output before this token (in a
    proposal, the path). Raises EngineError, see ``adjusted``.
    """
    return filtered(adjusted(logits, params, history, allowed), params)


def best(logits: Logits) -> int:
    """The largest, ties to the lower id. Raises EngineError, see ``adjusted``."""
    token = int(logits.argmax())  # the first NaN, if there is one
    if not logits[token] > -math.inf:
        check(logits)
    return token


def filtered(logits: Logits, params: SamplingParams) -> Candidates:
    """What survives temperature, top-k, top-p and min-p. Raises EngineError, see ``adjusted``."""
    check(logits)
    kept = tempered(logits, params.temperature)
    return min_p(top_p(top_k(kept, params.top_k), params.top_p), params.min_p)


def adjusted(
    logits: Logits, params: SamplingParams, history: Sequence[int], allowed: Mask | None = None
) -> Logits:
    """Logits after penalties, bias and mask: ``[vocabulary]``, the input itself if none applies.

    Raises:
        EngineError: a NaN among them, or no token left above -inf.
    """
    with np.errstate(all="ignore"):  # inf - inf and the like are caught below
        if params.penalties is not None:
            logits = penalised(logits, params.penalties, history, params.prompt_len)
        if params.bias:
            logits = biased(logits, params.bias)
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    check(logits)
    return logits


def check(logits: Logits) -> None:
    peak = float(logits.max())  # NaN wins a max
    if math.isnan(peak):
        raise EngineError("logits: at least one is NaN")
    if peak == -math.inf:
        raise EngineError("logits: no token is left to choose from (all are -inf or masked)")


def penalised(
    logits: Logits, penalties: Penalties, history: Sequence[int], prompt_len: int
) -> Floats:
    """Repetition over prompt and output (CTRL, Keskar et al. 2019, as HF and vLLM do it), then
    frequency and presence over the output (OpenAI). Ids beyond the vocabulary count for nothing.
    """
    scores = logits.astype(np.float64)
    path = np.asarray(history, dtype=np.int64)
    seen = np.unique(_within(path, len(scores)))
    ratio = penalties.repetition
    scores[seen] = np.where(scores[seen] > 0, scores[seen] / ratio, scores[seen] * ratio)
    said, counts = np.unique(_within(path[prompt_len:], len(scores)), return_counts=True)
    scores[said] -= penalties.frequency * counts + penalties.presence
    return scores


def _within(ids: Ids, vocab_size: int) -> Ids:
    return ids[(ids >= 0) & (ids < vocab_size)]


def biased(logits: Logits, bias: dict[int, float]) -> Floats:
    """Adds each token's bias. Ids beyond the vocabulary (a drafter's may be smaller) are passed
    over; ``check_bias`` refuses them where requests are admitted.
    """
    scores = logits.astype(np.float64)
    for token, value in bias.items():
        if 0 <= token < len(scores):
            scores[token] += value
    return scores


def check_bias(params: SamplingParams, vocab_size: int) -> None:
    """Raises RequestError for a biased token outside the vocabulary, or a bias not finite."""
    for token, value in (params.bias or {}).items():
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"logit_bias: token {token} is outside 0..{vocab_size - 1}", param="logit_bias"
            )
        if not math.isfinite(value):
            raise RequestError(
                f"logit_bias: {value} for token {token} is not finite", param="logit_bias"
            )


def tempered(scores: Logits, temperature: float) -> Candidates:
    """All tokens above -inf, scores divided by the temperature.

    If any is +inf, those tokens alone, all equal.
    """
    if scores.max() == np.inf:
        ids = np.flatnonzero(scores == np.inf)
        return Candidates(ids, np.zeros(len(ids)))
    everything = Candidates(np.arange(len(scores)), scores.astype(np.float64) / temperature)
    if everything.scores.min() > -np.inf:
        return everything
    return everything.only(everything.scores > -np.inf)


def top_k(kept: Candidates, count: int) -> Candidates:
    """The ``count`` best; 0 keeps all."""
    if not 0 < count < len(kept.ids):
        return kept
    edge = np.partition(kept.scores, -count)[-count]
    chosen = kept.scores > edge
    ties = np.flatnonzero(kept.scores == edge)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return kept.only(np.flatnonzero(chosen))


def top_p(kept: Candidates, mass: float) -> Candidates:
    """The nucleus (Holtzman et al. 2020): the fewest best whose probability, renormalised over the
    candidates, reaches ``mass``; the token that crosses it is kept. 1 keeps all.
    """
    if mass >= 1.0:
        return kept
    weights = relative_weights(kept.scores)
    total = weights.sum()
    # what is lighter than this holds less than 1 - mass in all, so the nucleus lies above it
    heavy = weights >= (1.0 - mass) * total / len(weights)
    running = np.cumsum(np.sort(weights[heavy])[::-1])
    count = int(np.searchsorted(running, mass * total)) + 1
    return top_k(kept.only(heavy), count)


def min_p(kept: Candidates, ratio: float) -> Candidates:
    """Those at least ``ratio`` times as probable as the best (Nguyen et al. 2024); 0 keeps all."""
    if ratio <= 0.0:
        return kept
    return kept.only(kept.scores - kept.scores.max() >= math.log(ratio))


def relative_weights(scores: Floats) -> Floats:
    """exp(score - best): the softmax before its division by the sum."""
    weights: Floats = np.exp(scores - scores.max())
    return weights
