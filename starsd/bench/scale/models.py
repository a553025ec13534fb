"""The real target and the real draft, loaded in this process to be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starsd.bench.draft.drafts import Draft, Drafts, open_drafts, room
from starsd.bench.draft.run import encoded
from starsd.bench.draft.setup import Setup, check, target_settings
from starsd.bench.draft.texts import Question, Text, answer
from starsd.bench.machine import allowed_cores
from starsd.bench.peers.server import pinned
from starsd.bench.prompts import load_prompts, short, spread
from starsd.drafters.interface import Drafter, DraftSequence
from starsd.engine.interface import Runner
from starsd.engine.loading import load_model
from starsd.log import only_warnings
from starsd.process.spawn import keep_heap
from starsd.protocol.sampling import SamplingParams
from starsd.sampling import compiled

DEEPEST = 8
"""Tokens of the longest proposal that is looked at."""


@dataclass(frozen=True)
class Source:
    """So many short ``prompts`` are answered greedily, with ``max_tokens`` each. Where steps are
    stretched a long one would take longer to read than anybody looks."""

    model: str
    draft: str
    dtype: str
    quantize: str
    prompts: int
    max_tokens: int

    @property
    def setup(self) -> Setup:
        return Setup(
            model=self.model,
            drafts=(self.draft,),
            dtype=self.dtype,
            quantize=self.quantize,
            temperatures=(0.0,),
            prompts=self.prompts,
            max_tokens=self.max_tokens,
            depth=DEEPEST,
            nodes=0,
        )


@dataclass
class Models:
    """``texts`` are the target's answers, once they are asked for."""

    target: Runner
    draft: Draft
    drafts: Drafts
    vocabulary: str
    eos: tuple[int, ...]
    questions: list[Question]
    texts: list[Text] = field(default_factory=list)

    @property
    def drafter(self) -> Drafter:
        assert self.draft.drafter is not None
        return self.draft.drafter

    def answer(self, most: int | None = None) -> list[Text]:
        """All questions, or the first few."""
        tapped = bool(self.drafts.taps)
        self.texts = answer(self.target, self.questions[:most], self.eos, tapped=tapped)
        return self.texts

    def sequence(self, slot: int, text: Text) -> DraftSequence:
        limit = min(self.drafts.vocab_size, self.drafter.vocab_size)
        return DraftSequence(slot, text.question.sampling, limit)

    def extend(
        self, sequence: DraftSequence, text: Text, length: int, depth: int, nodes: int = 0
    ) -> None:
        """A round after ``length`` tokens of a text of which the sequence knows a part, or more."""
        base = min(len(sequence.tokens), length - 1)
        features = self.drafts.features(self.draft, text, max(0, base - 1), length - 1)
        sequence.extend(base, text.tokens[base:length], depth, nodes, features)


@contextmanager
def loaded(source: Source) -> Iterator[Models]:
    """On one core, as services of one thread have it.

    Raises:
        ConfigError: target or draft does not load, or no prompt fits them.
        UnsupportedModelError: an architecture that the engine refuses.
    """
    check(source.setup)
    keep_heap()
    with only_warnings(), pinned(allowed_cores()[:1]):
        yield _load(source)


def _load(source: Source) -> Models:
    setup = source.setup
    eos, prompts = encoded(setup, spread(short(load_prompts()), setup.prompts))
    beyond = setup.max_tokens + 1 + DEEPEST
    settings = target_settings(setup, max(map(len, prompts)) + beyond)
    compiled.install(settings.cache_dir)
    model = load_model(settings)
    target = model.runner()
    opened = open_drafts(setup, target, max(map(len, prompts)) + beyond)
    drafts = Drafts(opened, target.vocab_size, settings.draft_context)
    if drafts.taps:
        target.tap(drafts.taps)
    limit = room(opened, target) - beyond
    questions = [
        Question(ids, len(ids) + setup.max_tokens, SamplingParams(seed=seed, temperature=0.0))
        for seed, ids in enumerate(prompts)
        if len(ids) <= limit
    ]
    return Models(target, opened[0], drafts, model.vocabulary(), eos, questions)
