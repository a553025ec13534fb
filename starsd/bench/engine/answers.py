"""The model's own answers, on which precisions are compared: generated once, kept in a file."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from starsd.bench.engine.setup import LENGTH
from starsd.bench.prompts import load_prompts, short, spread
from starsd.engine.interface import Row, Runner, Tokenizer
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample

MOST_TOKENS = 96
"""Of an answer."""
TEMPERATURES = (0.0, 0.7)


@dataclass(frozen=True)
class Job:
    """An answer to be: who asks what, and how its tokens are drawn."""

    prompt: str
    seed: int
    temperature: float

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(seed=self.seed, temperature=self.temperature)


@dataclass
class Answer:
    """``ids`` of the prompt, then ``tokens``, the model's own."""

    job: Job
    ids: list[int]
    tokens: list[int] = field(default_factory=list)

    @property
    def text(self) -> list[int]:
        return self.ids + self.tokens


class Answers:
    """Answers of one model, in a file of JSON lines: what was interrupted goes on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.found: dict[Job, Answer] = dict(_read(file))

    @property
    def tokens(self) -> int:
        return sum(len(answer.tokens) for answer in self.found.values())

    def generate(
        self, runner: Runner, tokenizer: Tokenizer, tokens: int, deadline: float
    ) -> list[Answer]:
        """Answers of ``tokens`` tokens in all or a few more. What the deadline breaks off counts
        as far as it came, but is not kept.
        """
        asked = (
            Answer(job, ids)
            for job, ids in _jobs(tokenizer)
            if job not in self.found and len(ids) + MOST_TOKENS <= min(LENGTH, runner.max_length)
        )
        batch = Batch(runner, asked, tokenizer.eos_ids)
        while self.tokens < tokens and time.monotonic() < deadline:
            batch.fill(self.tokens + MOST_TOKENS * len(batch.running), tokens)
            for answer in batch.step():
                self._keep(answer)
        return [*self.found.values(), *batch.begun]

    def _keep(self, answer: Answer) -> None:
        self.found[answer.job] = answer
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(answer)) + "\n")


def _read(file: Path) -> Iterator[tuple[Job, Answer]]:
    if file.exists():
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            job = Job(**row["job"])
            yield job, Answer(job, row["ids"], row["tokens"])


def _jobs(tokenizer: Tokenizer) -> Iterator[tuple[Job, list[int]]]:
    """Each prompt greedily once, and sampled with one seed after the other, without end."""
    prompts = {prompt.id: prompt.turns[0] for prompt in spread(short(load_prompts()), 0)}
    encoded = {
        name: tokenizer.encode_chat([{"role": "user", "content": text}])
        for name, text in prompts.items()
    }
    for seed in itertools.count():
        for name, ids in encoded.items():
            for temperature in TEMPERATURES:
                if temperature or not seed:
                    yield Job(name, seed, temperature), ids


class Batch:
    """Answers being generated, one in a slot; who ends makes room."""

    def __init__(self, runner: Runner, asked: Iterable[Answer], eos: Sequence[int]) -> None:
        self._runner = runner
        self._asked = iter(asked)
        self._eos = eos
        self.running: dict[int, Answer] = {}

    def fill(self, expected: int, tokens: int) -> None:
        """Start answers while slots are free and the tokens ``expected`` are too few."""
        free = [slot for slot in range(self._runner.slots) if slot not in self.running]
        for slot in free:
            if expected >= tokens:
                return
            self.running[slot] = next(self._asked)
            expected += MOST_TOKENS

    @property
    def begun(self) -> list[Answer]:
        """Those that have not ended."""
        return [answer for answer in self.running.values() if answer.tokens]

    def step(self) -> list[Answer]:
        """A token for each; the answers that end with it."""
        rows = [_row(slot, answer) for slot, answer in self.running.items()]
        for answer, logits in zip(self.running.values(), self._runner.forward(rows), strict=True):
            text = answer.text
            answer.tokens.append(sample(logits[-1], answer.job.sampling, len(text), text))
        ended = [slot for slot, answer in self.running.items() if self._over(answer)]
        return [self.running.pop(slot) for slot in ended]

    def _over(self, answer: Answer) -> bool:
        return len(answer.tokens) == MOST_TOKENS or answer.tokens[-1] in self._eos


def _row(slot: int, answer: Answer) -> Row:
    """The whole prompt at first, then the newest token."""
    text = answer.text
    start = len(text) - 1 if answer.tokens else 0
    return Row(slot, text[start:], start)
