"""Drafts as a hub loads them, to be run in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from starsd.bench.draft.setup import CHAIN, NGRAM, TREE, Setup, draft_settings
from starsd.bench.draft.texts import Text
from starsd.drafters.interface import Drafter
from starsd.drafters.loading import load_drafter
from starsd.engine.interface import Features, Runner
from starsd.errors import ConfigError


@dataclass(frozen=True)
class Draft:
    """``drafter`` None: n-grams. ``layers``: the hidden states it reads, if it is a head."""

    name: str
    drafter: Drafter | None = None
    layers: Sequence[int] = ()

    @property
    def makes(self) -> tuple[str, ...]:
        """The shapes of its proposals."""
        return (CHAIN,) if self.drafter is None else (CHAIN, TREE)


@dataclass(frozen=True)
class Drafts:
    """All that are compared, for a target of ``vocab_size``. ``context``: positions of a prompt
    that a head gets to see."""

    all: Sequence[Draft]
    vocab_size: int
    context: int = 0

    @cached_property
    def taps(self) -> list[int]:
        """Layers that any of them reads."""
        return sorted({layer for draft in self.all for layer in draft.layers})

    def features(self, draft: Draft, text: Text, start: int, end: int) -> Features | None:
        """Those of positions ``start`` to ``end`` that a target would send."""
        if not draft.layers:
            return None
        start = max(start, len(text.question.ids) - self.context, 0)
        by_tap = text.features[start:end].reshape(end - start, len(self.taps), -1)
        chosen = by_tap[:, [self.taps.index(layer) for layer in draft.layers]]
        return np.ascontiguousarray(chosen.reshape(end - start, -1))


def open_drafts(setup: Setup, target: Runner, length: int) -> list[Draft]:
    """Raises ConfigError: a draft that does not load, or is none of this target."""
    return [_open(setup, name, target, length) for name in dict.fromkeys(setup.drafts)]


def room(drafts: Iterable[Draft], target: Runner) -> int:
    """Positions that all of them have."""
    lengths = (draft.drafter.max_length for draft in drafts if draft.drafter is not None)
    return min((target.max_length, *lengths))


def _open(setup: Setup, name: str, target: Runner, length: int) -> Draft:
    if name == NGRAM:
        return Draft(name)
    settings = draft_settings(setup, name, length)
    drafter, _, _, _, needs = load_drafter(settings)
    if needs is None:
        return Draft(name, drafter)
    if needs.revision != target.revision:
        raise ConfigError(
            f"--drafts {name}: drafts for {needs.revision}, target is {target.revision}",
            param="--drafts",
        )
    return Draft(name, drafter, needs.layers)
