"""A scripted target's answers, and drafts that are right or sometimes wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starsd.bench.draft.drafts import Draft, Drafts
from starsd.bench.draft.setup import Setup
from starsd.bench.draft.texts import Question, Text, answer
from starsd.drafters.eagle import EagleDrafter
from starsd.drafters.lm import LmDrafter
from starsd.protocol.sampling import SamplingParams
from starsd.settings.draft import DraftSettings
from tests.scripted import EOS, VOCAB, ScriptedModel
from tests.scripted_head import TAPS, ScriptedHead, make_head, make_target

PROMPTS = ([1, 2, 3], list(range(40, 90)), [7] * 20)
SETUP = Setup(
    model="m",
    drafts=("self", "ngram"),
    dtype="auto",
    quantize="none",
    temperatures=(0.0,),
    prompts=2,
    max_tokens=24,
    depth=4,
    nodes=12,
)


def questions(temperature: float = 0.0, count: int = 30) -> list[Question]:
    return [
        Question(ids, len(ids) + count, SamplingParams(seed=seed, temperature=temperature))
        for seed, ids in enumerate(PROMPTS)
    ]


def texts_of(temperature: float = 0.0, taps: Sequence[int] = TAPS, count: int = 30) -> list[Text]:
    """By ``StateModel``."""
    target = make_target()
    target.tap(taps)
    return answer(target, questions(temperature, count), (EOS,), tapped=True)


def drafts_of(*drafts: Draft, context: int = 256) -> Drafts:
    return Drafts(drafts, VOCAB, context)


def head_draft(head: ScriptedHead | None = None) -> Draft:
    made = head or make_head()
    return Draft("head", EagleDrafter(made, draft_settings()), made.layers)


def lm_draft(kind: type[ScriptedModel]) -> Draft:
    settings = draft_settings()
    return Draft("lm", LmDrafter(kind(settings).runner(), settings))


def draft_settings(**changes: Any) -> DraftSettings:
    given = {"max_sequences": 4, "max_length": 256, "prefill_chunk": 256, "step_tokens": 1024}
    exact = {"trees": "on", "draft_confidence": 0, "draft_candidates": 0}
    return DraftSettings(**{**given, **exact, **changes})
