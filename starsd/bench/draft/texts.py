"""The target's answers, with the hidden states that heads read. Text never depends on drafts, so
replaying them on it is exact."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from starsd.bench.speed_result import loops
from starsd.engine.interface import Features, Row, Runner
from starsd.engine.kv_budget import blocks_of
from starsd.errors import ConfigError
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample

CHUNK = 128
"""Prompt tokens of one sequence in one step."""


@dataclass(frozen=True)
class Question:
    """``ids`` of a prompt, to be answered up to ``limit`` tokens in all."""

    ids: Sequence[int]
    limit: int
    sampling: SamplingParams


@dataclass
class Text:
    """A prompt and its answer so far. ``rows``: hidden states by position, in pieces."""

    question: Question
    tokens: list[int]
    rows: list[Features] = field(default_factory=list)
    read: int = 0
    """Tokens that went through the model."""

    @property
    def own(self) -> list[int]:
        """The answer's."""
        return self.tokens[len(self.question.ids) :]

    @cached_property
    def looping(self) -> bool:
        return loops(self.own)

    @cached_property
    def features(self) -> Features:
        """``[positions, taps * hidden]``, once the answer has ended."""
        whole = np.concatenate(self.rows)
        self.rows.clear()
        return whole

    def ended(self, eos: Sequence[int]) -> bool:
        own = self.own
        return bool(own) and (own[-1] in eos or len(self.tokens) == self.question.limit)


class Cache(Protocol):
    """What a target and a drafter have in common."""

    @property
    def slots(self) -> int: ...

    @property
    def kv_blocks(self) -> int: ...


def slots_for(cache: Cache, length: int) -> int:
    """As many as may all become so long. Raises ConfigError: not even one."""
    slots = min(cache.slots, cache.kv_blocks // blocks_of(length))
    if not slots:
        raise ConfigError(f"STARSD_KV_MEMORY holds no text of {length} tokens")
    return slots


def answer(
    runner: Runner,
    questions: Iterable[Question],
    eos: Sequence[int],
    *,
    tapped: bool,
    tick: Callable[[], None] = lambda: None,
) -> list[Text]:
    """Plain decoding in a batch, which whoever ends makes room in; ``tick`` follows each answer.

    Raises ConfigError: the cache does not hold one of them.
    """
    texts = [Text(question, list(question.ids)) for question in questions]
    waiting, running = deque(texts), dict[int, Text]()
    slots = slots_for(runner, max((text.question.limit for text in texts), default=1))
    while waiting or running:
        for slot in range(slots):
            if waiting and slot not in running:
                running[slot] = waiting.popleft()
        _step(runner, running, tapped)
        for slot in [slot for slot, text in running.items() if text.ended(eos)]:
            del running[slot]
            runner.release(slot)
            tick()
    return texts


def _step(runner: Runner, running: dict[int, Text], tapped: bool) -> None:
    """A chunk of its prompt or a token for each."""
    rows = [_row(slot, text) for slot, text in running.items()]
    logits = runner.forward(rows)
    features = runner.features() if tapped else ()
    for text, one in zip(running.values(), features, strict=tapped):
        text.rows.append(one.copy())
    for text, row, found in zip(running.values(), rows, logits, strict=True):
        text.read += len(row.tokens)
        if row.want:
            sampling, tokens = text.question.sampling, text.tokens
            tokens.append(sample(found[-1], sampling, len(tokens), tokens))


def _row(slot: int, text: Text) -> Row:
    tokens = text.tokens[text.read : text.read + CHUNK]
    whole = text.read + len(tokens) == len(text.tokens)
    return Row(slot, tokens, text.read, want=int(whole))
