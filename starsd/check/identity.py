"""Is the star's text the target's own? Compared with plain decoding, token by token.

In batch-invariant mode star and plain decoding agree bit for bit, and anything else is wrong. In
normal mode a differing answer is judged by a teacher-forced reference: each of its tokens must be
the reference's own sample, or so near a tie that rounding explains it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice, product

from starsd.check.client import Answer, Question
from starsd.check.prompts import PROMPTS
from starsd.engine.interface import Row, Runner
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.neartie import near_tie
from starsd.sampling.sampler import sample

TEMPERATURES = (0.0, 0.8, 1.0)
TOKENS_PER_EXCUSE = 5000


@dataclass
class Report:
    """Answers by outcome; ``tokens`` compared, ``accepted`` of ``proposed`` tokens in the star."""

    identical: int = 0
    near_ties: int = 0
    wrong: int = 0
    total: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def passed(self) -> bool:
        """Proposals were verified, nothing is wrong, and no more is excused than one near tie in
        5,000 tokens (one is always allowed)."""
        excusable = max(1, self.tokens // TOKENS_PER_EXCUSE)
        return self.proposed > 0 and self.wrong == 0 and self.near_ties <= excusable


def make_questions(count: int, max_tokens: int) -> list[Question]:
    """``count`` different (prompt, seed) pairs; temperatures take turns."""
    pairs = ((prompt, seed) for seed, prompt in product(range(count), PROMPTS))
    return [
        Question(prompt, seed, temperature, max_tokens)
        for (prompt, seed), temperature in zip(
            islice(pairs, count), cycle(TEMPERATURES), strict=False
        )
    ]


def compare(
    questions: Iterable[Question],
    star: Iterable[Answer],
    plain: Iterable[Answer],
    reference: Runner | None,
) -> Report:
    """``reference`` None admits no excuse."""
    report = Report()
    for question, ours, theirs in zip(questions, star, plain, strict=True):
        report.total += 1
        report.tokens += len(theirs.ids)
        report.proposed += ours.stats.proposed
        report.accepted += ours.stats.accepted
        if ours.outcome == theirs.outcome:
            report.identical += 1
        elif reference is not None and explained(reference, question.sampling, ours):
            report.near_ties += 1
        else:
            report.wrong += 1
    return report


def explained(reference: Runner, sampling: SamplingParams, answer: Answer) -> bool:
    """Whether every token is the reference's own sample or a near tie with it."""
    text = answer.prompt_ids + answer.ids
    first = len(answer.prompt_ids)
    row = Row(slot=0, tokens=text[:-1], start=0, want=len(answer.ids))
    (logits,) = reference.forward([row])
    for offset, scores in enumerate(logits):
        position = first + offset
        own = sample(scores, sampling, position, text[:position])
        tied = near_tie(scores, sampling, position, text[:position], own, text[position])
        if own != text[position] and not tied:
            return False
    return True
