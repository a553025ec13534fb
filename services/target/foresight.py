"""What hubs foresaw, and when that is verified at once instead of asking and waiting.

A hub tells a tree of what may be said after a prefix. Once the next tokens are known, what lies
below them is a proposal that takes no trip. It knows less than one drafted after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from services.target.acceptance import Acceptance, surviving
from services.target.depth import DepthControl, Plan
from services.target.guess import NOTHING, Guess, Source
from services.target.sequence import Sequence
from services.target.stats import StarStats
from starsd.protocol.messages import Foresight
from starsd.protocol.tokens import unpack_tokens
from starsd.settings import TargetSettings


class Foreseeing:
    """One target's. ``control`` has decided what a step would be like without."""

    def __init__(
        self, settings: TargetSettings, control: DepthControl, stats: StarStats, vocab_size: int
    ) -> None:
        self._always = settings.run_ahead == "on"
        self._control = control
        self._stats = stats
        self._vocab_size = vocab_size
        self._depth = settings.draft_depth
        self._believed = Acceptance(self._depth)

    def choose(
        self, asking: Mapping[Sequence, int], others: int, plan: Plan
    ) -> dict[Sequence, Guess]:
        """What to verify in the next step, in which nobody waits then; nothing: ask as planned."""
        found = {
            one: guess for one, limit in asking.items() if (guess := self._of(one, limit, plan))
        }
        taken = bool(found) and (self._always or self._pays(found, len(asking) + others, plan))
        for sequence, guess in found.items():
            self._stats.foreseen("taken" if taken else "spared")
            sequence.spared = (len(sequence.tokens), NOTHING if taken else guess)
        return found if taken else {}

    def _pays(self, found: Mapping[Sequence, Guess], size: int, plan: Plan) -> bool:
        """Everyone waits for everyone, so it is for all or for none."""
        if not self._control.step_time.known:
            return False
        tokens = size + sum(self._gain(one, guess) for one, guess in found.items())
        verify_s = self._control.step_time(size + sum(map(len, found.values())))
        return tokens > plan.rate * verify_s

    def _gain(self, sequence: Sequence, guess: Guess) -> float:
        """Tokens that should come true."""
        rates = self._acceptance(sequence).rates(self._believed.rates())
        return sum(surviving(rates)[: len(guess.levels)])

    def _acceptance(self, sequence: Sequence) -> Acceptance:
        if sequence.foreseen is None:
            sequence.foreseen = Acceptance(self._depth)
        return sequence.foreseen

    def note(self, sequence: Sequence, levels: int, accepted: int) -> None:
        """Of so many levels foreseen so many came true."""
        self._believed.note(levels, accepted)
        self._acceptance(sequence).note(levels, accepted)

    def review(self, sequence: Sequence) -> None:
        """What was not taken would have come true as far as is known by now."""
        length, guess = sequence.spared
        if guess and len(sequence.tokens) > length:
            said = sequence.tokens[length:]
            accepted = len(guess.path(said))
            levels = len(guess.levels)
            self.note(
                sequence, min(levels, accepted) if accepted == len(said) else levels, accepted
            )
        sequence.spared = (0, NOTHING)

    # -- what was told ---------------------------------------------------------------------------

    def _of(self, sequence: Sequence, limit: int, plan: Plan) -> Guess:
        """What would be proposed now, of the shape that would be asked for."""
        self.review(sequence)
        told, star = sequence.star.foresight, sequence.star
        if told is None or told.round not in star.sent:
            return NOTHING
        if (tree := self._tree(told)) is None:
            self._stats.reply("malformed")
            star.foresight = None
            return NOTHING
        said = sequence.tokens[star.sent[told.round].length :]
        guess = tree.after(said).within(limit)
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
