"""The token at a position: the winner of an exponential race over the processed distribution.

``argmin_v E(seed, position, v) / p(v)``, the Gumbel-max trick with noise that anyone who knows the
seed can compute; a drafter that does guesses the target's sample, not merely its distribution
(Daliri, Musco, Suresh 2024: "Coupling without communication and drafter-invariant speculative
decoding").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.compiled import draw
from starsd.sampling.noise import Floats, exponential_noise, exponentials, noise_words
from starsd.sampling.processing import (
    Candidates,
    Logits,
    Mask,
    adjusted,
    best,
    filtered,
    relative_weights,
    top_k,
)

_PREFILTER_FROM = 512
_DROWNING = 1e6
"""From scores this far from 0 on, noise may be lost in their rounding: all run, and tie."""
_WIDTH = 20.0
"""A race is won above log(sum exp(score)) - log(_WIDTH) but for once in e**20 (then all run)."""


def sample(
    logits: Logits,
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    allowed: Mask | None = None,
) -> int:
    """The target's token at absolute ``position``, from logits ``[vocabulary]``.

    ``history`` is prompt and output before it (read by penalties only); ``allowed`` the grammar's
    mask. Ties go to the lower id. Raises EngineError for NaN or if no token is left.
    """
    return propose(logits, params, position, history, 0, allowed)


def propose(
    logits: Logits,
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    considered: int,
    allowed: Mask | None = None,
) -> int:
    """The drafter's guess of ``sample``: same filters and noise on its own ``logits``, but only
    its ``considered`` best tokens run (0: all, which is ``sample``). Raises as ``sample`` does.
    """
    if allowed is not None or params.penalties is not None or params.bias:
        logits = adjusted(logits, params, history, allowed)
    if params.greedy:
        return best(logits)
    winner = draw(logits, params, position, considered)
    if winner is not None:
        return winner
    runners = top_k(filtered(logits, params), considered)
    return race(runners, params.seed, position)


def race(runners: Candidates, seed: int, position: int) -> int:
    """The id of the winner. Many runners are first cut to those that can still win."""
    if len(runners.ids) >= _PREFILTER_FROM and abs(runners.scores.max()) <= _DROWNING:
        front = _front(runners, seed, position)
        if front is not None:
            return front
    perturbed = perturb(runners.scores, exponential_noise(seed, position, runners.ids))
    return int(runners.ids[perturbed.argmax()])


def perturb(scores: Floats, noise: Floats) -> Floats:
    """Score in the race, the largest wins: ``score - log E``."""
    return scores - np.log(noise)


def _front(runners: Candidates, seed: int, position: int) -> int | None:
    """The winner if it scores at least ``floor``; None says that nobody does.

    E >= u, so reaching the floor takes u <= _WIDTH * p(v): a comparison of the noise's integer
    with a limit, true for about ``_WIDTH`` tokens. Limits are one part in a thousand too wide, far
    beyond rounding, so nobody above the floor is missed.
    """
    weights = relative_weights(runners.scores)
    total = weights.sum()
    limits = weights * (1.001 * _WIDTH * 2.0**32 / total)
    alive = np.flatnonzero(limits >= 0.5)  # u is never below 2**-33
    words = noise_words(seed, position, runners.ids[alive])
    ahead = np.flatnonzero(words < limits[alive])
    if not len(ahead):
        return None
    best = runners.only(alive[ahead])
    perturbed = perturb(best.scores, exponentials(words[ahead]))
    floor = runners.scores.max() + math.log(total / _WIDTH)
    winner = int(perturbed.argmax())
    return int(best.ids[winner]) if perturbed[winner] >= floor else None
