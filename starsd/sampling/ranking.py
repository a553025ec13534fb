"""The candidates of a tree's node: who would win the race if those before them were not there.

They are ranked by the logit under the request's own noise, ``logit + temperature * g`` with
``g = -log E`` (at temperature 0 the logit). Its softmax over the candidates is their confidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from starsd.errors import EngineError
from starsd.protocol.sampling import SamplingParams
from starsd.sampling import compiled
from starsd.sampling.compiled import Ranked
from starsd.sampling.noise import Floats, Ids, exponential_noise
from starsd.sampling.processing import (
    Candidates,
    Logits,
    adjusted,
    check,
    filtered,
    relative_weights,
    tempered,
    top_k,
)
from starsd.sampling.sampler import perturb

NONE = Ranked([], [])


def rank_all(
    logits: Logits,
    params: SamplingParams,
    text: list[int],
    paths: Sequence[Sequence[int]],
    considered: int,
    count: int,
    ids: Ids | None = None,
) -> list[Ranked]:
    """What ``rank`` says of each row of ``logits``, which follows ``text`` and a path of its own;
    nothing where it raises."""
    positions = [len(text) + len(path) for path in paths]
    known: Sequence[Ranked | None] = [None] * len(paths)
    if params.penalties is None and not params.bias:
        known = compiled.rank(logits, params, positions, considered, count, ids)
    found = []
    for row, position, path, ranked in zip(logits, positions, paths, known, strict=True):
        try:
            found.append(
                ranked or rank(row, params, position, [*text, *path], considered, count, ids)
            )
        except EngineError:
            found.append(NONE)
    return found


def rank(
    logits: Logits,
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    considered: int,
    count: int,
    ids: Ids | None = None,
) -> Ranked:
    """The ``count`` likeliest of the ``considered`` best tokens; the first is what ``propose``
    would say. ``ids``, ascending, are the target's ids of a draft vocabulary of its own (None:
    they are the same); ``history`` has the target's. Raises as ``propose`` does.
    """
    if params.penalties is not None or params.bias:
        logits = adjusted(logits, *_told_in(ids, params, history))
    kept = _contenders(logits, params, considered)
    tokens = kept.ids if ids is None else ids[kept.ids]
    scores = kept.scores
    if not params.greedy:
        scores = perturb(scores, exponential_noise(params.seed, position, tokens))
    confidences = _softmax(scores if params.greedy else scores * params.temperature)
    first = np.argsort(-scores, kind="stable")[:count]
    return Ranked(tokens[first].tolist(), confidences[first].tolist())


def _softmax(scores: Floats) -> Floats:
    weights = relative_weights(scores)
    shares: Floats = weights / weights.sum()
    return shares


def _contenders(logits: Logits, params: SamplingParams, considered: int) -> Candidates:
    """What runs in ``propose``, ids ascending; for a greedy request, what comes closest."""
    check(logits)
    some = _head(logits, params, considered)
    few = logits if some is None else logits[some]
    kept = tempered(few, 1.0) if params.greedy else filtered(few, params)
    kept = top_k(kept, considered)
    return kept if some is None else Candidates(some[kept.ids], kept.scores)


def _head(logits: Logits, params: SamplingParams, considered: int) -> Ids | None:
    """Where those lie that can be left at the end, unless that takes the mass of all to tell.
    Saves most of the time: a pass over float32, not several over float64."""
    limits = [considered] if params.greedy else [considered, params.top_k]
    wanted = min((limit for limit in limits if limit), default=0)
    if not params.greedy and params.top_p < 1.0:
        wanted = params.top_k
    if logits.dtype != np.float32 or not 0 < wanted < len(logits):
        return None
    return np.flatnonzero(logits >= np.partition(logits, -wanted)[-wanted])


def _told_in(
    ids: Ids | None, params: SamplingParams, history: Sequence[int]
) -> tuple[SamplingParams, Sequence[int]]:
    """Bias and history in a draft vocabulary's own ids; -1 stands for what it lacks."""
    if ids is None:
        return params, history
    bias = params.bias or {}
    own = dict(zip(_places(ids, list(bias)), bias.values(), strict=True))
    return msgspec.structs.replace(params, bias=own), _places(ids, history)


def _places(ids: Ids, tokens: Sequence[int]) -> list[int]:
    wanted = np.asarray(tokens, dtype=np.int64)
    place = np.searchsorted(ids, wanted).clip(max=len(ids) - 1)
    found: list[int] = np.where(ids[place] == wanted, place, -1).tolist()
    return found
