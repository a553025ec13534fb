"""Log probabilities of the model itself: before penalties, bias, mask and temperature, so that they
depend on the text alone (vLLM's ``raw_logprobs``)."""

from __future__ import annotations

import numpy as np

from starsd.protocol.frames import Logprobs
from starsd.sampling.processing import Logits, tempered, top_k

LEAST = -9999.0
"""Stands for minus infinity, which JSON lacks (as in vLLM)."""


def logprobs(logits: Logits, token: int, count: int) -> Logprobs:
    """Of ``token`` and of the ``count`` likeliest, best first, ties to the lower id.

    ``logits`` is ``[vocabulary]``, in nats. They must be such as can be sampled from.
    """
    everything = tempered(logits, 1.0)
    peak = everything.scores.max()
    total = peak + np.log(np.exp(everything.scores - peak).sum())
    best = top_k(everything, count) if count else everything.only(everything.ids[:0])
    order = np.argsort(-best.scores, kind="stable")
    own = everything.scores[everything.ids == token]
    return Logprobs(
        _finite(own[0] - total) if len(own) else LEAST,
        best.ids[order].tolist(),
        [_finite(score - total) for score in best.scores[order]],
    )


def _finite(logprob: float) -> float:
    return max(LEAST, float(logprob))
