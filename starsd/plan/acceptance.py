"""How many drafted tokens a target accepts: as a formula's average, and as a simulation's draws."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from starsd.errors import ConfigError

CHOICES = 8
"""What a draft expects next, best first; of ranks from this one on nothing is known."""


class Outcome(NamedTuple):
    """A verified round: tokens ``accepted``, and whether the one that the target added was
    ``foreseen``, among the draft's choices. ``last``: the answer ends here."""

    accepted: int
    foreseen: bool
    last: bool = False


class Outcomes(Protocol):
    """One sequence's future."""

    def room(self) -> int:
        """Tokens worth proposing."""

    def next(self, depth: int) -> Outcome:
        """What becomes of a proposal of ``depth`` tokens."""


@dataclass(frozen=True)
class Acceptance:
    """``reached[j]`` is the share of rounds of at least ``j + 1`` proposed tokens of which the
    first ``j + 1`` are accepted. Beyond the list each further token fares like the last in it.
    ``foreseen`` is the share of rejections in which another choice of the draft was right."""

    reached: tuple[float, ...]
    foreseen: float = 0.0

    def __post_init__(self) -> None:
        falling = all(a >= b for a, b in zip((1.0, *self.reached), self.reached, strict=False))
        if not self.reached or not falling or self.reached[-1] < 0 or not 0 <= self.foreseen <= 1:
            raise ConfigError(f"acceptance {self.reached}: want falling shares between 1 and 0")

    def at(self, token: int) -> float:
        """The share of rounds in which tokens 0 to ``token`` are accepted."""
        if token < 0:
            return 1.0
        if token < len(self.reached):
            return self.reached[token]
        return self.reached[-1] * self._tail ** (token + 1 - len(self.reached))

    @property
    def _tail(self) -> float:
        before = self.reached[-2] if len(self.reached) > 1 else 1.0
        return self.reached[-1] / before if before else 0.0

    def hit(self, depth: int) -> float:
        """The share of rounds of this depth whose outcome was foreseen."""
        whole = self.at(depth)  # drafting on would have met the target's own token too
        return whole + (1 - whole) * self.foreseen

    def tokens(self, depth: int) -> float:
        """tau: tokens a round of this depth gives, the target's own included."""
        return 1.0 + sum(self.at(token) for token in range(depth))


def constant(rate: float, foreseen: float = 0.0) -> Acceptance:
    """Each token is accepted with the same chance, as long as those before it are."""
    return Acceptance((rate,), foreseen)


class Drawn:
    """Outcomes by chance; answers do not end."""

    def __init__(self, acceptance: Acceptance, seed: int) -> None:
        self._acceptance, self._random = acceptance, random.Random(seed)

    def room(self) -> int:
        return 2**31

    def next(self, depth: int) -> Outcome:
        luck = self._random.random()
        accepted = 0
        while accepted < depth and luck < self._acceptance.at(accepted):
            accepted += 1
        knows_on = accepted == depth and luck < self._acceptance.at(depth)
        return Outcome(accepted, knows_on or self._random.random() < self._acceptance.foreseen)


class Walked:
    """Outcomes of recorded answers, one after the other from ``first`` on: ``ranks[i]`` is the
    draft's rank of an answer's token ``i``, had all before it been known to it. The first token of
    each comes of reading the prompt, without a proposal."""

    def __init__(self, answers: Sequence[Sequence[int]], first: int = 0) -> None:
        self._answers, self._current = answers, first
        self._place = 0

    @property
    def _ranks(self) -> Sequence[int]:
        return self._answers[self._current % len(self._answers)]

    def room(self) -> int:
        """The last token of an answer is the target's own anyway."""
        return len(self._ranks) - self._place - 1

    def next(self, depth: int) -> Outcome:
        ranks, accepted = self._ranks[self._place :], 0
        while accepted < min(depth, len(ranks) - 1) and ranks[accepted] == 0:
            accepted += 1
        self._place += accepted + 1
        last = accepted + 1 == len(ranks)
        foreseen = ranks[accepted] < CHOICES
        if last:
            self._current, self._place = self._current + 1, 0
        return Outcome(accepted, foreseen, last)


def recorded(answers: Sequence[Sequence[int]], deepest: int) -> Acceptance:
    """The average over rounds that begin anywhere in recorded answers but too near their ends.
    Raises ConfigError: there is none."""
    runs = [
        _run(ranks[place:], deepest)
        for ranks in answers
        for place in range(1, len(ranks) - deepest + 1)
    ]
    if not runs:
        raise ConfigError(f"no answer is longer than {deepest}: nothing to learn acceptance from")
    wrong = [rank for ranks in answers for rank in ranks[1:] if rank]
    foreseen = sum(rank < CHOICES for rank in wrong) / len(wrong) if wrong else 0.0
    reached = tuple(sum(run > token for run in runs) / len(runs) for token in range(deepest))
    return Acceptance(reached, foreseen)


def rounds(ranks: Sequence[int], start: int, end: int, depth: int) -> float:
    """So many take a recorded answer from token ``start`` to ``end`` with ``depth`` tokens proposed
    in each; of the last one what it needs of it."""
    count = 0.0
    while start < end:
        room = len(ranks) - start - 1
        gained = 1 + _run(ranks[start:], min(depth, room))
        count += min(1.0, (end - start) / gained)
        start += gained
    return count


def _run(ranks: Sequence[int], deepest: int) -> int:
    """Leading tokens that the draft knew."""
    for place, rank in enumerate(ranks[:deepest]):
        if rank:
            return place
    return deepest
