"""Models that replay a ``World`` instead of computing, for ``STARSD_SCRIPTED``: no torch, no
weights, a step that takes as long as the recorded one did.

Target and hub are the real services around them. A target samples the recorded tokens whatever is
proposed; a hub's draft proposes what the recorded draft would have, and is wrong where it was.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLTokenizer, TokenizerWrapper

from starsd.bench.scale.world import Text, World, read
from starsd.engine.interface import Features, Logits, Row, SlotState
from starsd.engine.kv_budget import blocks_of
from starsd.errors import EngineError, RequestError
from starsd.plan.acceptance import CHOICES
from starsd.settings.model import ModelSettings

TARGET = f"{__name__}:ReplayTarget"
DRAFT = f"{__name__}:ReplayDraft"
SURE = 100.0
"""So much above all others is the winner at any temperature."""
TIE = 1e-3
"""Ranks that are equally likely keep their order."""


class ReplayTarget:
    """``starsd.engine.interface.Model`` of a target; ``model`` is a world's file."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.world = read(Path(settings.model))

    def runner(self) -> ReplayRunner:
        return TargetRunner(self.world, self.settings)

    def tokenizer(self) -> ReplayTokenizer:
        return ReplayTokenizer(self.world)

    def vocabulary(self) -> str:
        return self.world.vocabulary

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return self.tokenizer().grammar_tokenizer(vocab_size)


class ReplayDraft(ReplayTarget):
    """Of a hub."""

    def runner(self) -> ReplayRunner:
        return DraftRunner(self.world, self.settings)


class ReplayTokenizer:
    """A user's message is the number of a text."""

    chat_template = ""

    def __init__(self, world: World) -> None:
        self._world = world
        self.vocab_size = world.vocab_size
        self.eos_ids = world.eos

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        answer: bool = True,
    ) -> list[int]:
        """Raises RequestError: there is no such text."""
        number = str(messages[-1]["content"])
        if not number.isdecimal() or int(number) >= len(self._world.texts):
            raise RequestError(
                f"text {number!r}: want one of {len(self._world.texts)}", param="messages"
            )
        return list(self._world.texts[int(number)].prompt)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(f"{token} " for token in tokens)

    def token_bytes(self, token: int) -> bytes:
        return self.decode([token]).encode()

    def special_id(self, text: str) -> int | None:
        return None

    def text_stream(self, *, special: bool = False) -> ReplayTextStream:
        return ReplayTextStream()

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return LLTokenizer(TokenizerWrapper(_Numbers(self, vocab_size)))


class _Numbers:
    """What ``llguidance.TokenizerWrapper`` asks for."""

    bos_token_id = None

    def __init__(self, tokenizer: ReplayTokenizer, vocab_size: int) -> None:
        self.tokens = [tokenizer.token_bytes(token) for token in range(vocab_size)]
        self.special_token_ids = sorted(tokenizer.eos_ids)
        self.eos_token_id = min(tokenizer.eos_ids)

    def __call__(self, text: bytes | str) -> list[int]:
        return [*map(int, text.split())]


class ReplayTextStream:
    """Token ids are all the text there is."""

    def push(self, token: int) -> str:
        return f"{token} "

    def flush(self) -> str:
        return ""


class ReplayRunner:
    """``Runner`` whose slots remember what they were given. Subclasses say what a step costs and
    what they would say next."""

    state = SlotState.ROLLS_BACK

    def __init__(self, world: World, settings: ModelSettings) -> None:
        self._world = world
        self.settings = settings
        self.vocab_size = world.vocab_size
        self.max_length = settings.max_length
        self.slots = settings.max_sequences
        self.kv_blocks = self.slots * blocks_of(self.max_length)
        self.revision = world.revision
        self.fingerprint = f"{world.revision}/replay"
        self._held: list[list[int]] = [[] for _ in range(self.slots)]
        self._texts: list[Text | None] = [None] * self.slots
        self._sureness = sureness(world)
        # What is all alike has no best few, and whoever looks for them takes very long.
        self._others = np.random.default_rng(0).normal(size=self.vocab_size).astype(np.float32)
        self._logits = np.tile(self._others, (0, 1))
        self._touched: list[tuple[int, int]] = []

    def parts(self) -> dict[str, float]:
        return {}

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        """Takes as long as the recorded step, its own work included."""
        ends = time.perf_counter() + self._seconds(rows)
        self._clear(sum(row.want for row in rows))
        found, first = [], 0
        for row in rows:
            self._advance(row, first)
            found.append(self._logits[first : first + row.want])
            first += row.want
        self._pass_time(ends)
        return found

    def _pass_time(self, until: float) -> None:
        time.sleep(max(0.0, until - time.perf_counter()))

    def tap(self, layers: Sequence[int]) -> None:
        raise EngineError(f"a replay has no hidden states of layers {layers}")

    def features(self) -> list[Features]:
        return []

    def release(self, slot: int, length: int = 0) -> None:
        self._held[slot], self._texts[slot] = self._held[slot][:length], None

    def copy(self, source: int, slot: int, length: int) -> None:
        self._held[slot], self._texts[slot] = self._held[source][:length], None

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        held = self._held[slot]
        held[start:] = [held[start + step] for step in path]

    def _seconds(self, rows: Sequence[Row]) -> float:
        raise NotImplementedError

    def _choices(self, text: Text | None, history: list[int]) -> Sequence[int]:
        """Next tokens, best first. ``text`` None: nobody recorded how this goes on."""
        raise NotImplementedError

    def _clear(self, rows: int) -> None:
        """Room for so many rows that say nothing: what the last call wrote is taken back, for a
        fresh row of a whole vocabulary would cost as much as a fast step."""
        for row, token in self._touched:
            self._logits[row, token] = self._others[token]
        self._touched.clear()
        if rows > len(self._logits):
            self._logits = np.tile(self._others, (rows, 1))

    def _advance(self, row: Row, first: int) -> None:
        """Raises EngineError: a gap before the row."""
        held = self._held[row.slot]
        if row.start > len(held):
            raise EngineError(f"slot {row.slot} holds {len(held)}, the row starts at {row.start}")
        if not row.start:
            self._texts[row.slot] = None
        prefix = held[: row.start]
        held[row.start :] = row.tokens
        unwanted = len(row.tokens) - row.want
        for place in range(row.want):
            history = prefix + row.path(unwanted + place)
            choices = self._choices(self._text(row.slot, history), history)
            for token, logit in zip(choices, self._sureness, strict=False):
                self._logits[first + place, token] = logit
                self._touched.append((first + place, token))

    def _text(self, slot: int, history: list[int]) -> Text | None:
        self._texts[slot] = self._texts[slot] or self._world.find(history)
        return self._texts[slot]


def sureness(world: World) -> list[float]:
    """Logits of a draft's choices, best first: it is as sure of each as it was right on average."""
    ranks = [rank for text in world.texts for rank in text.ranks[1:]]
    shares = [(ranks.count(rank) + 1) / (len(ranks) + CHOICES) for rank in range(CHOICES)]
    falling = [min(shares[: rank + 1]) for rank in range(CHOICES)]
    return [SURE + math.log(share) - TIE * rank for rank, share in enumerate(falling)]


class TargetRunner(ReplayRunner):
    """Steps vary as the real target's did."""

    def __init__(self, world: World, settings: ModelSettings) -> None:
        super().__init__(world, settings)
        self._random = random.Random()

    def _seconds(self, rows: Sequence[Row]) -> float:
        typical = self._world.costs.verify(sum(len(row.tokens) for row in rows))
        return typical * self._random.choice(self._world.verify_factors)

    def _choices(self, text: Text | None, history: list[int]) -> Sequence[int]:
        """The recorded token of this position, wrong proposals before it or not: what follows
        those is never read."""
        tokens = text.tokens if text else []
        return (tokens[len(history)] if len(history) < len(tokens) else self._world.eos[0],)


class DraftRunner(ReplayRunner):
    """Right where the recorded draft was right, and second or later where it was that. After a
    wrong token of its own it only goes on being wrong."""

    def _seconds(self, rows: Sequence[Row]) -> float:
        return self._world.costs.draft_next(len(rows))

    def _pass_time(self, until: float) -> None:
        """With a core of its own it computes, as a model would: who sleeps wakes up slowly."""
        while self.settings.cores and time.perf_counter() < until:
            pass
        super()._pass_time(until)

    def _choices(self, text: Text | None, history: list[int]) -> Sequence[int]:
        others = [(history[-1] + 1 + step) % self.vocab_size for step in range(CHOICES + 1)]
        length = len(history)
        if text is None or length >= len(text.tokens) or history != text.tokens[:length]:
            return others
        right, rank = text.tokens[length], text.ranks[length - len(text.prompt)]
        wrong = [token for token in others if token != right]
        return [*wrong[:rank], right, *wrong[rank:]] if rank < CHOICES else wrong
