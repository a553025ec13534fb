"""What hubs foresaw, and when that is verified at once instead of asking and waiting.

A hub tells a tree of what may be said after a prefix. Once the next tokens are known, what lies
below them is a proposal that takes no trip. It knows less than one drafted after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.target.depth import DepthControl, Plan, Trip
from services.target.guess import NOTHING, Guess, Source
from services.target.sequence import Sequence
from services.target.stats import StarStats
from starsd.protocol.messages import Foresight
from starsd.protocol.tokens import unpack_tokens
from starsd.settings.target import TargetSettings

DECAY = 0.95
"""Weight of a round against the one after it."""
COMPARED = 16
"""Once in so many rounds a hub is asked all the same, to compare."""
FIRST_HOPE, HOPED_ROUNDS = 2.0, 4.0
"""Tokens that a round gives until more is known, and how many rounds that counts as."""


@dataclass
class Gained:
    """Tokens of a round, as a decayed mean."""

    rounds: float = HOPED_ROUNDS
    tokens: float = HOPED_ROUNDS * FIRST_HOPE

    def note(self, tokens: int) -> None:
        self.rounds = DECAY * self.rounds + 1
        self.tokens = DECAY * self.tokens + tokens

    @property
    def mean(self) -> float:
        return self.tokens / self.rounds


class Foreseeing:
    """One target's. ``control`` has planned what a step is like without.

    Text that was foreseen is easy to draft, so what asking gives is learned from such rounds alone:
    those in which it promised more, and a few others.
    """

    def __init__(
        self, settings: TargetSettings, control: DepthControl, stats: StarStats, vocab_size: int
    ) -> None:
        self._always = settings.run_ahead == "on"
        self._control = control
        self._stats = stats
        self._vocab_size = vocab_size
        self._asked, self._guessed = Gained(), Gained()
        self._until_compared = COMPARED

    def choose(
        self, asking: Mapping[Sequence, int], others: int, plan: Plan, trip: Trip
    ) -> dict[Sequence, Guess]:
        """What to verify in the next step, in which nobody waits then; nothing: ask as planned.
        Everyone waits for everyone, so it is for all or for none."""
        for sequence in asking:
            self._compare(sequence)
        every = ((one, self._foreseen(one, limit, plan)) for one, limit in asking.items())
        found = {one: guess for one, guess in every if guess}
        if not found:
            return {}
        if self._always or (self._pays(found, asking, others, plan, trip) and not self._due()):
            self._stats.foreseen("taken", len(found))
            return found
        self._stats.foreseen("spared", len(found))
        for sequence, guess in found.items():
            sequence.spared = (len(sequence.tokens), guess if plan.wait else NOTHING)
        return {}

    def _pays(
        self,
        found: Mapping[Sequence, Guess],
        asking: Mapping[Sequence, int],
        others: int,
        plan: Plan,
        trip: Trip,
    ) -> bool:
        """Whether it promises more tokens a second than the plan."""
        step_time, size = self._control.step_time, len(asking) + others
        rate = plan.rate
        if plan.wait:
            rows = len(asking) * self._control.rows(plan.nodes, plan.depth)
            seconds = trip(plan.depth) + step_time(size + rows)
            rate = (size + len(asking) * (self._asked.mean - 1)) / seconds
        verify_s = step_time(size + sum(map(len, found.values())))
        return size + len(found) * (self._guessed.mean - 1) > rate * verify_s

    def _due(self) -> bool:
        """Whether it is time to compare."""
        self._until_compared = (self._until_compared or COMPARED) - 1
        return not self._until_compared

    def _compare(self, sequence: Sequence) -> None:
        """A round has passed in which its hub was asked for what it had foreseen."""
        length, guess = sequence.spared
        said = sequence.tokens[length:]
        if guess and said:
            self._asked.note(len(said))
            self.verified(guess.path(said))
        sequence.spared = (0, NOTHING)

    def verified(self, path: list[int]) -> None:
        """Of what was foreseen these nodes were right."""
        self._guessed.note(1 + len(path))

    # -- what was told ---------------------------------------------------------------------------

    def _foreseen(self, sequence: Sequence, limit: int, plan: Plan) -> Guess:
        """What would be proposed now, in the shape that would be asked for."""
        told, star = sequence.star.foresight, sequence.star
        if told is None or told.round not in star.sent:
            return NOTHING
        if (tree := self._tree(told)) is None:
            self._stats.reply("malformed")
            star.foresight = None
            return NOTHING
        guess = tree.after(sequence.tokens[star.sent[told.round].length :]).within(limit)
        nodes = plan.nodes if plan.depth else self._control.shapes[-1]
        guess = guess.cut(nodes) if nodes else guess.trunk()
        if not guess:
            self._stats.foreseen("missed")
        return guess

    def _tree(self, told: Foresight) -> Guess | None:
        """None if it is no tree of our tokens."""
        tokens = unpack_tokens(told.tokens)
        if any(token >= self._vocab_size for token in tokens):
            return None
        tree = Guess.tree(tokens, told.parents)
        return tree and replace(tree, source=Source.FORESEEN)
