"""What the draft knew of the target's answers, token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from starsd.bench.draft.texts import Text as Answer
from starsd.bench.draft.texts import slots_for
from starsd.bench.scale.models import Models
from starsd.bench.scale.world import Text
from starsd.plan.acceptance import CHOICES


def texts(models: Models) -> tuple[Text, ...]:
    """Of all its answers of two tokens and more. Raises ConfigError: a cache too small for one."""
    answers = [one for one in models.answer() if len(one.own) > 1]
    return tuple(_text(reader) for reader in _read(models, answers))


class Reader:
    """An answer in a slot of the draft, which is asked for each next token in turn."""

    def __init__(self, models: Models, slot: int, answer: Answer) -> None:
        self._models, self.answer = models, answer
        self.sequence = models.sequence(slot, answer)
        self._length = len(answer.question.ids) + 1
        self.ranks = [CHOICES]  # the first token comes of the prompt, before any proposal
        self._ask()

    @property
    def over(self) -> bool:
        return self._length == len(self.answer.tokens)

    def settle(self) -> None:
        """The draft has said what it expects."""
        expected = self.answer.tokens[self._length]
        drafted = self.sequence.drafted
        self.ranks.append(drafted.index(expected) if expected in drafted else CHOICES)
        self._length += 1
        if not self.over:
            self._ask()

    def _ask(self) -> None:
        self._models.extend(self.sequence, self.answer, self._length, depth=1, nodes=CHOICES)


def _read(models: Models, answers: Iterable[Answer]) -> list[Reader]:
    """All answers, as many at a time as the draft has slots for; in order."""
    waiting, found = deque(answers), list[Reader]()
    longest = max((len(one.tokens) for one in waiting), default=1) + CHOICES
    free, reading = deque(range(slots_for(models.drafter, longest))), list[Reader]()
    while waiting or reading:
        while free and waiting:
            reading.append(Reader(models, free.popleft(), waiting.popleft()))
            found.append(reading[-1])
        models.drafter.step([one.sequence for one in reading])
        for one in [one for one in reading if one.sequence.idle]:
            one.settle()
            if one.over:
                reading.remove(one)
                models.drafter.release(one.sequence.slot)
                free.append(one.sequence.slot)
    return found


def _text(reader: Reader) -> Text:
    answer = reader.answer
    return Text(tuple(answer.question.ids), tuple(answer.own), tuple(reader.ranks))
