"""All that a run of ``starsd bench engine`` found; None for what was not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starsd.bench.engine.contexts import Contexts
from starsd.bench.engine.flips import Flips
from starsd.bench.engine.invariance import Invariance
from starsd.bench.engine.shapes import Shapes
from starsd.bench.engine.steps import Steps
from starsd.bench.engine.throughput import Throughput


@dataclass(frozen=True)
class Result:
    """``clock`` says which time was measured; ``seconds`` how long each subject took."""

    clock: str
    seconds: dict[str, float]
    settings: dict[str, Any]
    machine: dict[str, Any]
    steps: list[Steps] | None = None
    throughput: Throughput | None = None
    sampling_us: dict[str, float] | None = None
    flips: list[Flips] | None = None
    shapes: Shapes | None = None
    contexts: list[Contexts] | None = None
    invariance: list[Invariance] | None = None
