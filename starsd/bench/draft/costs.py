"""What a draft's step costs beside the target's own, both on one core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from starsd.bench.draft.drafts import Draft, Drafts
from starsd.bench.draft.replay import Place
from starsd.bench.draft.setup import Shape
from starsd.bench.draft.texts import Cache, Text, slots_for
from starsd.bench.engine.timing import Key, Timer
from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Row, Runner
from starsd.errors import ConfigError
from starsd.sampling.sampler import sample

PLACES = 4
"""In the middle of so many answers everything is timed."""
TARGET, PLAIN = "target", "plain"


@dataclass(frozen=True)
class Costs:
    """Of one temperature. ``plain_ms`` takes the target's step of one row. In such steps, by shape:
    ``verify`` is a step that verifies a proposal, ``draft`` one of the draft of that name."""

    plain_ms: float
    verify: Mapping[str, float]
    draft: Mapping[Key, float]


def measure(
    target: Runner,
    drafts: Drafts,
    texts: Sequence[Text],
    shapes: Mapping[str, Shape],
    timer: Timer,
    subject: str,
) -> Costs:
    """Everything in turn. Raises ConfigError: no answer is long enough for a round."""
    caches: list[Cache] = [
        target,
        *(draft.drafter for draft in drafts.all if draft.drafter is not None),
    ]
    places = middles(texts, caches, max(map(max, shapes.values())))
    _prefill(target, places)
    rows = {PLAIN: 1} | {name: 1 + max(shape) for name, shape in shapes.items()}
    steps: dict[Key, Steps] = {
        (TARGET, name): Steps(target, places, count) for name, count in rows.items()
    }
    proposals: dict[Key, Proposals] = {
        (draft.name, name): Proposals(drafts, draft, places, shape)
        for draft in drafts.all
        for name, shape in shapes.items()
        if draft.drafter is not None
    }
    found = timer.medians(subject, {**steps, **proposals})
    plain = found[TARGET, PLAIN] / len(places)
    return Costs(
        plain_ms=1000 * plain,
        verify={name: found[TARGET, name] / found[TARGET, PLAIN] for name in shapes},
        draft={key: found[key] / made.steps / plain for key, made in proposals.items()},
    )


def middles(
    texts: Sequence[Text], caches: Iterable[Cache], proposed: int, most: int = PLACES
) -> list[Place]:
    """As many as all have room for, with so many tokens ``proposed``. Raises ConfigError."""
    places = []
    for text in texts:
        place = Place(text)
        if not place.over:
            place.length += (len(text.tokens) - place.length) // 2
            places.append(place)
    if not places:
        raise ConfigError("no answer has two steps: raise --max-tokens", param="--max-tokens")
    longest = max(place.length for place in places) + proposed
    return places[: min(most, *(slots_for(cache, longest) for cache in caches))]


def _prefill(target: Runner, places: Sequence[Place]) -> None:
    for slot, place in enumerate(places):
        target.forward([Row(slot, place.known[:-1], 0, want=0)])


class Steps:
    """At each place a step of the target with so many rows, and its first token."""

    def __init__(self, target: Runner, places: Sequence[Place], rows: int) -> None:
        self._target, self._places, self._rows = target, places, rows

    def __call__(self) -> None:
        for slot, place in enumerate(self._places):
            tokens = [place.text.tokens[place.length - 1]] * self._rows
            row = Row(slot, tokens, place.length - 1, want=self._rows)
            (logits,) = self._target.forward([row])
            sample(logits[0], place.text.question.sampling, place.length, place.text.tokens)


class Proposals:
    """At each place a round's proposal; ``steps`` were taken for all of them the last time."""

    def __init__(self, drafts: Drafts, draft: Draft, places: Sequence[Place], shape: Shape) -> None:
        assert draft.drafter is not None
        self._drafts, self._draft, self._drafter = drafts, draft, draft.drafter
        self._places, self._shape = places, shape
        limit = min(drafts.vocab_size, draft.drafter.vocab_size)
        self._sequences = [
            DraftSequence(slot, place.text.question.sampling, limit)
            for slot, place in enumerate(places)
        ]
        self.steps = 0

    def __call__(self) -> None:
        self.steps = sum(map(self._propose, self._sequences, self._places))

    def _propose(self, sequence: DraftSequence, place: Place) -> int:
        """All is new at first, then only the last token."""
        base = place.length - 1 if sequence.tokens else 0
        tokens = place.text.tokens[base : place.length]
        features = self._drafts.features(
            self._draft, place.text, max(0, base - 1), place.length - 1
        )
        sequence.extend(base, tokens, *self._shape, features)
        steps = 0
        while not sequence.idle:
            self._drafter.step([sequence])
            steps += 1
        return steps
