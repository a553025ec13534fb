"""The target talks to itself: it writes a user's turn after its own chat template, then answers it.

So the drafts are trained on the distribution they will meet, without any data set (the idea of
Magpie, Xu et al. 2024, and of self-distillation for draft models).
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog

from starsd.bench.speed_result import loops
from starsd.engine.interface import Row, Runner
from starsd.process.pace import Every
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.noise import choice_seed
from starsd.sampling.sampler import sample
from training.frame import Frame
from training.shards import Dialogue, Shards

TEMPERATURES = (0.0, 0.0, 0.0, 0.7, 1.0)
"""Of answers; drafts are asked for greedy text most often. Users always speak at 1."""
USER_TOKENS = 200
MIN_USER_TOKENS = 4
ANSWER_TOKENS = 400
ANOTHER_TURN = 0.35
TASKED = 0.2
"""Of users' first turns, those that are a task upon what was answered before: long passages, which
the target would hardly write as a user."""
COMPOSED = 0.7
"""Of the other users, those who say what was composed for them."""
STARTED = 0.5
"""Of those left, begun with a starter; the others are all the target's own."""
LOOKED_FOR = 16
"""Every so many tokens an answer is searched for loops: what follows would teach nothing."""
PASSAGES = 64
"""Answers remembered for tasks."""
MIN_PASSAGE = 100
CHUNK = 256
SAVE_S = 120.0

log = structlog.get_logger()

Turns = list[list[int]]
"""What a user says, turn by turn, as token ids."""


@dataclass
class Talk:
    """A dialogue in the making; ``cached`` tokens have gone through the model."""

    number: int
    slot: int
    seed: int
    temperature: float
    tokens: list[int]
    own: list[bool]
    answering: bool = False
    turn_start: int = 0
    cached: int = 0
    random: random.Random = field(default_factory=random.Random)
    asking: Turns = field(default_factory=list)
    """What the user will say in later turns, if that is given."""

    @property
    def sampling(self) -> SamplingParams:
        temperature = self.temperature if self.answering else 1.0
        return SamplingParams(seed=self.seed, temperature=temperature)

    @property
    def turn_length(self) -> int:
        return len(self.tokens) - self.turn_start

    @property
    def turn_left(self) -> int:
        """Tokens that the turn may still take."""
        return (ANSWER_TOKENS if self.answering else USER_TOKENS) - self.turn_length

    def say(self, tokens: Sequence[int], *, own: bool = False) -> None:
        self.tokens += tokens
        self.own += [own] * len(tokens)

    def row(self) -> Row:
        chunk = self.tokens[self.cached : self.cached + CHUNK]
        done = self.cached + len(chunk) == len(self.tokens)
        return Row(self.slot, chunk, self.cached, want=int(done))

    def finished(self) -> Dialogue:
        tokens = np.array(self.tokens, dtype=np.int32)
        return Dialogue(self.number, self.temperature, tokens, np.array(self.own, dtype=np.bool_))


class Speaker(ABC):
    """Keeps ``at_once`` dialogues going and hands over those that ended.

    ``chats``: what users say, turn by turn (token ids), to be answered first, as long as there are
    any. ``tasks``: what some users say before something that was answered earlier. ``compose``:
    what some others say. ``starters``: first words of which some users' turns are continued.
    """

    def __init__(
        self,
        frame: Frame,
        eos: frozenset[int],
        *,
        at_once: int,
        max_length: int,
        seed: int,
        first_number: int = 0,
        chats: Iterable[Turns] = (),
        starters: Sequence[list[int]] = (),
        tasks: Sequence[list[int]] = (),
        compose: Callable[[random.Random], Turns] = lambda _: [],
    ) -> None:
        self._frame = frame
        self._eos = eos
        self._max_length = max_length
        self._seed = seed
        self._next = first_number
        self._chats = self._short(chats)
        self._starters = starters
        self._tasks = tasks
        self._compose = compose
        self._passages: deque[list[int]] = deque(maxlen=PASSAGES)
        self._talks = [self._begin(slot) for slot in range(at_once)]

    def _short(self, chats: Iterable[Turns]) -> Iterator[Turns]:
        """Those whose first turn leaves room for an answer."""
        fixed = len(self._frame.opening) + len(self._frame.answer)
        room = self._max_length - fixed - USER_TOKENS
        for chat in chats:
            if len(chat[0]) <= room:
                yield chat
            else:
                log.warning("chat left out", first_turn=len(chat[0]), room=room)

    @abstractmethod
    def step(self) -> list[Dialogue]:
        """Every dialogue goes on; those that ended."""

    def _hear(self, talk: Talk, token: int) -> list[Dialogue] | None:
        """Take a dialogue's next token; None while it goes on, else what it left. Then another
        begins in its place."""
        talk.say([token], own=talk.answering)
        over = self._answered(talk, token) if talk.answering else self._asked(talk, token)
        if over is not None:
            self._talks[talk.slot] = self._begin(talk.slot)
        return over

    def _begin(self, slot: int) -> Talk:
        number, self._next = self._next, self._next + 1
        seed = choice_seed(self._seed, number)
        chance = random.Random(seed)
        talk = Talk(number, slot, seed, chance.choice(TEMPERATURES), [], [], random=chance)
        talk.say(self._frame.opening)
        talk.turn_start = len(talk.tokens)
        if chat := next(self._chats, None) or self._tasked(chance) or self._composed(chance):
            talk.say(chat[0])
            talk.asking = chat[1:]
            self._let_answer(talk, ended_by=-1)
        elif self._starters and chance.random() < STARTED:
            talk.say(chance.choice(self._starters))
        return talk

    def _tasked(self, chance: random.Random) -> Turns:
        """A turn, or none."""
        if not self._tasks or not self._passages or chance.random() >= TASKED:
            return []
        return [[*chance.choice(self._tasks), *chance.choice(self._passages)]]

    def _composed(self, chance: random.Random) -> Turns:
        return self._compose(chance) if chance.random() < COMPOSED else []

    def _asked(self, talk: Talk, token: int) -> list[Dialogue] | None:
        if token in self._eos:
            if talk.turn_length > MIN_USER_TOKENS:
                self._let_answer(talk, token)
                return None
            return self._kept(talk)
        return self._kept(talk) if talk.turn_length >= USER_TOKENS else None

    def _let_answer(self, talk: Talk, ended_by: int) -> None:
        talk.say(self._frame.after(self._frame.answer, ended_by))
        talk.answering, talk.turn_start = True, len(talk.tokens)

    def _answered(self, talk: Talk, token: int) -> list[Dialogue] | None:
        room = self._max_length - len(talk.tokens)
        if token not in self._eos:
            over = talk.turn_length >= ANSWER_TOKENS or room < 1 or self._loops(talk)
            return [talk.finished()] if over else None
        self._remember(talk.tokens[talk.turn_start : -1])
        if talk.asking:
            return self._ask_next(talk, token, room)
        if room < 2 * USER_TOKENS or talk.random.random() > ANOTHER_TURN:
            return [talk.finished()]
        talk.say(self._frame.after(self._frame.reply, token))
        talk.answering, talk.turn_start = False, len(talk.tokens)
        return None

    def _loops(self, talk: Talk) -> bool:
        return talk.turn_length % LOOKED_FOR == 0 and loops(talk.tokens[talk.turn_start :])

    def _remember(self, answer: list[int]) -> None:
        if len(answer) >= MIN_PASSAGE and not loops(answer):
            self._passages.append(answer)

    def _ask_next(self, talk: Talk, ended_by: int, room: int) -> list[Dialogue] | None:
        asked = talk.asking.pop(0)
        if room < len(asked) + USER_TOKENS:
            return [talk.finished()]
        talk.say([*self._frame.after(self._frame.reply, ended_by), *asked])
        self._let_answer(talk, ended_by=-1)
        return None

    def _kept(self, talk: Talk) -> list[Dialogue]:
        """Of a dialogue whose user falls silent or raves: what was answered before."""
        if True not in talk.own:
            return []
        end = len(talk.own) - talk.own[::-1].index(True)
        del talk.tokens[end:], talk.own[end:]
        return [talk.finished()]


class EngineSpeaker(Speaker):
    """On a runner of our own, a token for each of its slots a step."""

    def __init__(self, runner: Runner, frame: Frame, eos: frozenset[int], **options: Any) -> None:
        """``options``: the rest of ``Speaker``'s."""
        self._runner = runner
        slots, length = runner.slots, runner.max_length
        super().__init__(frame, eos, at_once=slots, max_length=length, **options)

    def step(self) -> list[Dialogue]:
        talks = list(self._talks)
        rows = [talk.row() for talk in talks]
        ended = []
        for talk, row, logits in zip(talks, rows, self._runner.forward(rows), strict=True):
            talk.cached += len(row.tokens)
            if row.want:
                token = sample(logits[-1], talk.sampling, len(talk.tokens), talk.tokens)
                ended += self._hear(talk, token) or []
        return ended


def collect(
    speaker: Speaker, shards: Shards, budget: int, tell: Callable[[int], None] = lambda _: None
) -> None:
    """Sample until the shards hold ``budget`` tokens; what is there is kept when interrupted, and
    when killed, that of two minutes ago."""
    saving = Every(SAVE_S, time.monotonic)
    try:
        while shards.tokens < budget:
            for dialogue in speaker.step():
                shards.add(dialogue)
            tell(shards.tokens)
            if saving.due():
                shards.flush()
    finally:
        shards.flush()
