"""The paper's model of a star (StarSD, arXiv 2601.21622), and the same with a batched hub.

T_round = max(N S, S + T_return) for a hub that serves one job at a time, where S is its time for a
job and T_return = up + verify + down: the hub is busy all the time from
N_full = ceil(1 + T_return / S) on. A batched hub has B jobs in a step, whose cost S(d, B) grows
slower than B.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from starsd.plan.acceptance import Acceptance
from starsd.plan.costs import Costs
from starsd.plan.star import Figures, Mode, Star

ROUNDS = 60
"""Halvings of the interval in which a batch size is looked for."""


def figures(star: Star, costs: Costs, acceptance: Acceptance) -> Figures:
    """On average and in the long run, with no chance in anything."""
    return _MODES[star.mode](star, costs, acceptance)


def full_at(costs: Costs, depth: int) -> int:
    """N_full: targets of one sequence that keep a one-at-a-time hub busy all the time."""
    return math.ceil(1 + costs.return_s(depth) / costs.service_s(depth))


def _plain(star: Star, costs: Costs, _: Acceptance) -> Figures:
    return _of_round(star, 1.0, costs.step_s(star.sequences), 0.0)


def _colocated(star: Star, costs: Costs, acceptance: Acceptance) -> Figures:
    drafting = costs.service_s(star.depth, star.sequences)
    rows = star.sequences * (1 + star.depth)
    round_s = drafting + costs.step_s(rows)
    return _of_round(star, acceptance.tokens(star.depth), round_s, drafting / round_s)


def _fifo(star: Star, costs: Costs, acceptance: Acceptance) -> Figures:
    jobs, service_s = _jobs(star), costs.service_s(star.depth)
    alone_s = star.sequences * service_s + costs.return_s(star.depth, star.sequences)
    round_s = max(jobs * service_s, alone_s)
    busy = jobs * service_s / round_s
    return _of_round(star, acceptance.tokens(star.depth), round_s, busy)


def _batched(star: Star, costs: Costs, acceptance: Acceptance) -> Figures:
    round_s, busy = _batched_round(star, costs)
    return _of_round(star, acceptance.tokens(star.depth), round_s, busy)


def _run_ahead(star: Star, costs: Costs, acceptance: Acceptance) -> Figures:
    """A job whose proposal was drafted before it came costs its way only. That takes idle time, of
    which a busy hub has less, and a step for each token between a proposal and the next job."""
    round_s, busy = _batched_round(star, costs)
    away_s = costs.return_s(star.depth, star.sequences)
    there_is = away_s / (costs.draft_next(_jobs(star)) * (1 + star.depth))
    hits = acceptance.hit(star.depth) * (1 - busy) * min(1.0, there_is)
    ahead_s = round_s - hits * (round_s - away_s)
    busy *= (1 - hits) * round_s / ahead_s
    return _of_round(star, acceptance.tokens(star.depth), ahead_s, busy)


def _batched_round(star: Star, costs: Costs) -> tuple[float, float]:
    """Its duration and the share of time in which the hub computes.

    A target's sequences come together. Beside them in a step are those of every other target whose
    jobs are computed: a share p of the time, that part of a round (mean value analysis). A job that
    comes in the midst of a step of others waits for half of it.
    """
    targets, jobs, own = _targets(star), _jobs(star), star.sequences
    away_s = costs.return_s(star.depth, own)

    def at_hub_s(batch: float) -> float:
        service_s = costs.service_s(star.depth, batch)
        others = 1 - (away_s / (service_s + away_s)) ** (targets - 1)
        return service_s * (1 + others / (2 * star.depth))

    def excess(batch: float) -> float:
        computed_s = costs.service_s(star.depth, batch)
        return own + (jobs - own) * computed_s / (at_hub_s(batch) + away_s) - batch

    here_s = at_hub_s(_root(excess, own, jobs))
    return here_s + away_s, 1 - (away_s / (here_s + away_s)) ** targets


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls through zero between ``low`` and ``high`` does so."""
    if excess(low) <= 0:
        return low
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _targets(star: Star) -> int:
    """Of one hub; of the fullest one if they don't divide."""
    return math.ceil(star.targets / star.hubs)


def _jobs(star: Star) -> int:
    """Sequences that it serves."""
    return _targets(star) * star.sequences


def _of_round(star: Star, tokens: float, round_s: float, busy: float) -> Figures:
    sequences = star.targets * star.sequences
    return Figures(sequences * tokens / round_s, round_s, tokens, busy)


_MODES = {
    Mode.PLAIN: _plain,
    Mode.COLOCATED: _colocated,
    Mode.FIFO: _fifo,
    Mode.BATCHED: _batched,
    Mode.RUN_AHEAD: _run_ahead,
}
