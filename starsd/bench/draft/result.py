"""What replayed rounds and measured costs say of each draft."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starsd.bench.draft.costs import Costs
from starsd.bench.draft.replay import Round
from starsd.bench.draft.setup import CHAIN, TREE
from starsd.bench.draft.texts import Text

At = tuple[int, int]
"""Depth and rank of a node."""


@dataclass(frozen=True)
class Told:
    """The target's answers at a temperature, and its own costs, as ``Costs`` has them."""

    temperature: float
    answers: int
    tokens: int
    looping: int
    plain_ms: float
    verify: dict[str, float]


@dataclass(frozen=True)
class Rounds:
    """Rounds of one shape: means, but for the count. ``proposed`` is the share that had a proposal,
    ``step_cost`` that of a draft step in plain steps (None: no model), ``speed`` what is to be
    expected over plain decoding (see ``expected``). None where all answers loop."""

    rounds: int
    proposed: float
    steps: float
    nodes: float
    step_cost: float | None
    tokens: float
    speed: float
    tokens_without_loops: float | None
    speed_without_loops: float | None


@dataclass(frozen=True)
class Hit:
    """Nodes of trees at ``depth`` (from 1) that were of ``rank`` (1: the likeliest) among those
    proposed after the same: how many, how many of them after what the target said, and how many
    it said too."""

    depth: int
    rank: int
    proposed: int
    reached: int
    hits: int

    @property
    def rate(self) -> float:
        """Of those that could be right. Raises ZeroDivisionError: there were none."""
        return self.hits / self.reached


@dataclass(frozen=True)
class Drafted:
    """A draft at a temperature. ``acceptance``: by position, the share of chains that are right
    so far, of all rounds; so their sum is what a round accepts."""

    draft: str
    temperature: float
    acceptance: list[float]
    acceptance_without_loops: list[float]
    chain: Rounds
    tree: Rounds | None
    hits: list[Hit]


@dataclass(frozen=True)
class Result:
    """``left_out`` prompts had no room in target or drafts. ``clock`` says which time was taken."""

    targets: list[Told]
    drafts: list[Drafted]
    left_out: int
    clock: str
    settings: dict[str, Any]
    machine: dict[str, Any]


def told(temperature: float, texts: Sequence[Text], costs: Costs) -> Told:
    return Told(
        temperature=temperature,
        answers=len(texts),
        tokens=sum(len(text.own) for text in texts),
        looping=sum(text.looping for text in texts),
        plain_ms=costs.plain_ms,
        verify=dict(costs.verify),
    )


def drafted(
    draft: str,
    temperature: float,
    replayed: Mapping[str, Sequence[Round]],
    costs: Costs,
    depth: int,
) -> Drafted:
    """``replayed`` by shape, each with a round or more; ``TREE`` may be missing."""
    chains, trees = replayed[CHAIN], replayed.get(TREE)
    return Drafted(
        draft=draft,
        temperature=temperature,
        acceptance=acceptance(chains, depth),
        acceptance_without_loops=acceptance(_sound(chains), depth),
        chain=summed(chains, draft, CHAIN, costs),
        tree=None if trees is None else summed(trees, draft, TREE, costs),
        hits=[] if trees is None else hits(trees),
    )


def acceptance(rounds: Sequence[Round], depth: int) -> list[float]:
    return [
        sum(len(one.path) >= position for one in rounds) / len(rounds)
        for position in range(1, depth + 1)
        if rounds
    ]


def summed(rounds: Sequence[Round], draft: str, shape: str, costs: Costs) -> Rounds:
    sound, cost = _sound(rounds), costs.draft.get((draft, shape))
    verify = costs.verify[shape]
    return Rounds(
        rounds=len(rounds),
        proposed=_proposed(rounds),
        steps=_steps(rounds),
        nodes=sum(len(one.drafted) for one in rounds) / len(rounds),
        step_cost=cost,
        tokens=_tokens(rounds),
        speed=expected(rounds, verify, cost),
        tokens_without_loops=_tokens(sound) if sound else None,
        speed_without_loops=expected(sound, verify, cost) if sound else None,
    )


def expected(rounds: Sequence[Round], verify: float, step_cost: float | None) -> float:
    """Tokens of a round over its time in plain steps, which give a token each. The draft's steps
    and the verification come one after the other, on a core each or not; what has no proposal is a
    plain step. Transport and waiting are not counted."""
    proposed = _proposed(rounds)
    time = proposed * verify + (1 - proposed) + _steps(rounds) * (step_cost or 0.0)
    return _tokens(rounds) / time


def hits(rounds: Sequence[Round]) -> list[Hit]:
    proposed, reached, hit = Counter[At](), Counter[At](), Counter[At]()
    for one in rounds:
        path = {-1, *one.path}
        parents = _parents(one)
        for node, (parent, place) in enumerate(zip(parents, places(parents), strict=True)):
            proposed[place] += 1
            reached[place] += parent in path
            hit[place] += node in path
    return [Hit(*at, proposed[at], reached[at], hit[at]) for at in sorted(proposed)]


def places(parents: Sequence[int]) -> list[At]:
    """Of each node its depth, and its rank among those with the same parent: likelier ones come
    first in a proposal."""
    depths, siblings, found = {-1: 0}, Counter[int](), []
    for node, parent in enumerate(parents):
        depths[node] = depths[parent] + 1
        siblings[parent] += 1
        found.append((depths[node], siblings[parent]))
    return found


def _parents(one: Round) -> Sequence[int]:
    return range(-1, len(one.drafted) - 1) if one.parents is None else one.parents


def _sound(rounds: Sequence[Round]) -> list[Round]:
    return [one for one in rounds if not one.looping]


def _tokens(rounds: Sequence[Round]) -> float:
    return sum(one.tokens for one in rounds) / len(rounds)


def _steps(rounds: Sequence[Round]) -> float:
    return sum(one.steps for one in rounds) / len(rounds)


def _proposed(rounds: Sequence[Round]) -> float:
    return sum(bool(one.drafted) for one in rounds) / len(rounds)
