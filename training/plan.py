"""What to train, from what, for how long."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from starsd.engine.checkpoint import BUNDLED

WINDOW = 384
DRAFT_VOCABULARY = 8192
WARM_UP = 0.03
FADE_OUT = 0.25
FLOOR = 0.05


class Plan(BaseModel):
    """The defaults give a useful draft of the default target in about two hours on two cores.

    ``layers``: of an ``eagle`` head the hidden states it reads (see ``Runner.tap``), of an ``lm``
    the target's layers that it keeps. ``keep_gb``: of disk, for what the target computed of the
    dialogues: later passes need it again. ``data``: a folder of dialogues to begin with.
    ``start``: a head to go on from, as the ``draft`` setting names one, in place of the target's
    own weights; layers are its own then. ``vocabulary`` is how many tokens an ``eagle`` head may
    propose, those that the dialogues say most; None: as many as ``start`` does, else
    ``DRAFT_VOCABULARY``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path
    model: str = BUNDLED
    kind: Literal["eagle", "lm"] = "eagle"
    layers: tuple[int, ...] = ()
    vocabulary: int | None = Field(None, ge=64)
    tokens: int = Field(2_000_000, ge=1000)
    passes: float = Field(2.0, gt=0)
    batch_tokens: int = Field(3072, ge=16)
    steps: int = Field(3, ge=1, le=8)
    rate: float = Field(1e-3, gt=0)
    seed: int = Field(2601_21622, ge=0)
    device: str = "cpu"
    sampler: Literal["engine", "vllm"] = "engine"
    threads: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1)
    keep_gb: float = Field(12.0, ge=0)
    chats: Path | None = None
    data: Path | None = None
    start: str = ""

    @property
    def updates(self) -> int:
        return max(1, round(self.tokens * self.passes / self.batch_tokens))

    def rate_at(self, update: int) -> float:
        """Up, level, and down at the end: more passes later go on from the level part."""
        rise = min(1.0, (update + 1) / (WARM_UP * self.updates))
        left = max(0.0, (self.updates - update) / (FADE_OUT * self.updates))
        return self.rate * rise * max(FLOOR, min(1.0, left))
