"""Drafts proposing round by round on text that the target already said."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starsd.bench.draft.drafts import Draft, Drafts
from starsd.bench.draft.setup import Shape
from starsd.bench.draft.texts import Text, slots_for
from starsd.drafters.interface import Drafter, DraftSequence
from starsd.drafters.ngram import Ngrams
from starsd.sampling.verification import matched


@dataclass(frozen=True)
class Round:
    """A step of the target. ``path`` are the nodes that it said too, ``tokens`` what it gave,
    ``steps`` what the draft took for it. ``parents`` as in a proposal; None is a chain."""

    drafted: Sequence[int]
    parents: Sequence[int] | None
    path: Sequence[int]
    tokens: int
    steps: int
    looping: bool


class Place:
    """Where in a text a replay is: ``length`` tokens are known, at first the prompt and a token."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.length = len(text.question.ids) + 1

    @property
    def room(self) -> int:
        """Tokens worth proposing: the target adds one itself."""
        return self.text.question.limit - self.length - 1

    @property
    def over(self) -> bool:
        return self.room <= 0 or self.length >= len(self.text.tokens)

    @property
    def known(self) -> list[int]:
        return self.text.tokens[: self.length]

    def pass_round(
        self, drafted: Sequence[int], parents: Sequence[int] | None = None, steps: int = 0
    ) -> Round:
        """The target's walk along the proposal."""
        rest = self.text.tokens[self.length :]
        path = matched(drafted, parents, rest)
        tokens = min(len(path) + 1, len(rest))
        self.length += tokens
        return Round(drafted, parents, path, tokens, steps, self.text.looping)


class Player:
    """One text in a slot of a drafter."""

    def __init__(self, slot: int, text: Text, drafts: Drafts, draft: Draft, shape: Shape) -> None:
        assert draft.drafter is not None
        self.place = Place(text)
        self._drafts, self._draft, self._shape = drafts, draft, shape
        limit = min(drafts.vocab_size, draft.drafter.vocab_size)
        self.sequence = DraftSequence(slot, text.question.sampling, limit)
        self._known = 0
        self.steps = 0
        self._ask()

    def settle(self) -> Round:
        """The proposal is complete: a round passes, and the next one is asked for."""
        sequence = self.sequence
        made = self.place.pass_round(sequence.drafted, sequence.parents or None, self.steps)
        if not self.place.over:
            self._ask()
        return made

    def _ask(self) -> None:
        base, place = self._known, self.place
        features = self._drafts.features(
            self._draft, place.text, max(0, base - 1), place.length - 1
        )
        depth, nodes = self._shape
        new = place.text.tokens[base : place.length]
        self.sequence.extend(base, new, min(depth, place.room), nodes, features)
        self._known, self.steps = place.length, 0


def replay(drafts: Drafts, draft: Draft, texts: Sequence[Text], shape: Shape) -> Iterator[Round]:
    """Of all texts. N-grams only make chains. Raises ConfigError: a cache too small for one."""
    if draft.drafter is None:
        for text in texts:
            yield from _repeat(text, shape.depth)
        return
    waiting = deque(text for text in texts if not Place(text).over)
    longest = max((len(text.tokens) for text in waiting), default=1) + max(shape)
    free, players = deque(range(slots_for(draft.drafter, longest))), list[Player]()
    while waiting or players:
        while free and waiting:
            players.append(Player(free.popleft(), waiting.popleft(), drafts, draft, shape))
        yield from _advance(draft.drafter, players)
        for player in [player for player in players if player.place.over]:
            players.remove(player)
            draft.drafter.release(player.sequence.slot)
            free.append(player.sequence.slot)


def _advance(drafter: Drafter, players: Sequence[Player]) -> Iterator[Round]:
    """A step for all."""
    drafter.step([player.sequence for player in players])
    for player in players:
        player.steps += 1
        if player.sequence.idle:
            yield player.settle()


def _repeat(text: Text, depth: int) -> Iterator[Round]:
    place, ngrams = Place(text), Ngrams(depth)
    while not place.over:
        made = place.pass_round(ngrams.propose(place.known)[: place.room])
        if made.drafted:
            ngrams.learn(len(made.path))
        yield made
