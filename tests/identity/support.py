"""Runners of the tiny model, and requests to put to them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from starsd.engine.interface import Runner
from starsd.engine.loading import load_drafter_runner, load_model
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.tiny import VOCAB

EOS = 1
MAX_LENGTH = 128
ANSWER = 24
SIZE: dict[str, Any] = {"max_sequences": 8, "dtype": "float32"}


def target_runner(folder: Path, **settings: Any) -> Runner:
    """Batch-invariant and of float32 unless told otherwise, eight slots."""
    given: dict[str, Any] = {"batch_invariant": True, **SIZE, **settings}
    return load_model(TargetSettings(model=str(folder), max_length=MAX_LENGTH, **given)).runner()


def draft_runner(folder: Path, draft: str, **settings: Any) -> Runner:
    given: dict[str, Any] = {**SIZE, **settings}
    return load_drafter_runner(
        DraftSettings(model=str(folder), draft=draft, max_length=MAX_LENGTH, **given)
    )


def make_requests(count: int, temperature: float, **sampling: Any) -> list[Submit]:
    """Prompts of 3 to 40 tokens with a seed each; the same for the same arguments."""
    choose = random.Random(f"{count} {temperature}")
    requests = []
    for index in range(count):
        prompt = [choose.randrange(3, VOCAB) for _ in range(choose.randint(3, 40))]
        params = SamplingParams(
            seed=choose.getrandbits(64),
            temperature=temperature,
            prompt_len=len(prompt),
            **sampling,
        )
        requests.append(
            Submit(id=f"r{index}", prompt=prompt, sampling=params, max_tokens=ANSWER, eos=(EOS,))
        )
    return requests
