"""From a setup to a result, subject by subject, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from starsd.bench.engine import (
    contexts,
    flips,
    invariance,
    sampling,
    shapes,
    steps,
    throughput,
)
from starsd.bench.engine.answers import Answer, Answers
from starsd.bench.engine.result import Result
from starsd.bench.engine.runners import CachedRunner, open_runner
from starsd.bench.engine.setup import (
    CONTEXT,
    CONTEXTS,
    FLIPS,
    INVARIANCE,
    LENGTH,
    SAMPLING,
    SEQUENCES,
    STEPS,
    THROUGHPUT,
    Setup,
    check,
    settings_of,
)
from starsd.bench.engine.timing import Timer
from starsd.bench.machine import describe, load_average
from starsd.bench.peers.server import pinned
from starsd.bench.prompts import load_prompts
from starsd.engine.interface import Runner, Tokenizer
from starsd.engine.loading import PretrainedModel
from starsd.log import only_warnings
from starsd.process.spawn import keep_heap
from starsd.sampling import compiled
from starsd.settings.target import TargetSettings

REFERENCE = "float32"
GENERATE_S = 300.0
COMPARE_S = 240.0
SHAPES_S = 60.0
"""Longest times for making answers and for comparing on them; counts tell how far it went."""

Say = Callable[[str], None]


def measure(setup: Setup, say: Say) -> tuple[Result, dict[str, Any]]:
    """Also the single times, in seconds. ``say`` is told what is being done.

    Raises:
        ConfigError: an option cannot be, or the model does not load.
        UnsupportedModelError: a precision that the model cannot have.
    """
    check(setup)
    keep_heap()
    machine, load_before = describe(setup.cores), load_average()
    with only_warnings(), pinned(setup.cores):
        bench = Bench(setup, say)
        found = bench.measure()
    facts = {**asdict(machine), "load_before": load_before, "load_after": load_average()}
    result = Result(
        **found,
        clock=bench.timer.kind,
        seconds=bench.seconds,
        settings=asdict(setup),
        machine=facts,
    )
    return result, {"times_s": bench.timer.raw}


class Bench:
    """Measures the subjects of a setup. Runners that several need are loaded once."""

    def __init__(self, setup: Setup, say: Say) -> None:
        self._setup = setup
        self._say = say
        self.timer = Timer(setup.threads, setup.repeats)
        self._runners: dict[str, CachedRunner] = {}
        self._model = PretrainedModel(self._settings(REFERENCE, 1, LENGTH))
        compiled.install(self._settings(REFERENCE, 1, LENGTH).cache_dir)
        self.seconds: dict[str, float] = {}

    def measure(self) -> dict[str, Any]:
        """Fields of ``Result``, those that were wanted."""
        found: dict[str, Any] = {}
        subjects = {
            STEPS: self._steps,
            THROUGHPUT: self._throughput,
            SAMPLING: self._sampling,
            FLIPS: self._flips,
            CONTEXTS: self._contexts,
            INVARIANCE: self._invariance,
        }
        for name, subject in subjects.items():
            if name in self._setup.only:
                self._say(name)
                begin = time.monotonic()
                found |= subject()
                self.seconds[name] = time.monotonic() - begin
        return found

    # -- on the runners of all precisions ---------------------------------------------------------

    def _steps(self) -> dict[str, Any]:
        return {"steps": steps.measure(self._all(), self.timer)}

    def _throughput(self) -> dict[str, Any]:
        from starsd.bench.engine.hf import EagerBatch  # imports torch

        runners = self._all()
        hf = EagerBatch(self._model.folder, SEQUENCES, CONTEXT)
        return {"throughput": throughput.measure(runners, hf, self.timer)}

    def _sampling(self) -> dict[str, Any]:
        text = self._tokenizer.encode_chat(
            [{"role": "user", "content": load_prompts()[0].turns[0]}]
        )
        logits = sampling.logits_of(self._runner(self._setup.precisions[0]), text)
        return {"sampling_us": sampling.measure(logits, self.timer)}

    def _flips(self) -> dict[str, Any]:
        """On answers of float32; and how often bfloat16 by torch differs from itself."""
        reference = self._runner(REFERENCE)
        answers = self._answers(reference)
        self._say(f"{FLIPS}: comparing")
        others = {name: one for name, one in self._all().items() if name != REFERENCE}
        found = flips.measure(reference, others, answers, time.monotonic() + COMPARE_S)
        self._say(f"{FLIPS}: shapes of batches")
        runner = self._open(shapes.DTYPE, shapes.ROWS, LENGTH, compiled=False)
        by_shape = shapes.measure(runner, answers, time.monotonic() + SHAPES_S)
        return {"flips": found, "shapes": by_shape}

    def _answers(self, reference: Runner) -> list[Answer]:
        folder = self._settings(REFERENCE, 1, LENGTH).cache_dir.expanduser() / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        kept = Answers(folder / f"answers-{reference.revision}.jsonl")
        deadline = time.monotonic() + GENERATE_S
        return kept.generate(reference, self._tokenizer, self._setup.tokens, deadline)

    # -- on runners of their own ------------------------------------------------------------------

    def _contexts(self) -> dict[str, Any]:
        self._runners.clear()
        lengths = self._setup.contexts
        found = [
            contexts.measure(name, self._open(name, 1, max(lengths)), lengths, self.timer)
            for name in self._setup.precisions
        ]
        return {"contexts": found}

    def _invariance(self) -> dict[str, Any]:
        self._runners.clear()
        found = []
        for dtype in invariance.DTYPES:
            normal, invariant = (
                self._open(dtype, invariance.SLOTS, LENGTH, compiled=False, invariant=mode)
                for mode in (False, True)
            )
            found.append(invariance.measure(dtype, normal, invariant, self.timer))
        return {"invariance": found}

    # -- loading ----------------------------------------------------------------------------------

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return self._model.tokenizer()

    def _all(self) -> dict[str, CachedRunner]:
        return {name: self._runner(name) for name in self._setup.precisions}

    def _runner(self, precision: str) -> CachedRunner:
        if precision not in self._runners:
            self._runners[precision] = self._open(precision, SEQUENCES, LENGTH)
        return self._runners[precision]

    def _open(self, precision: str, slots: int, length: int, **how: bool) -> CachedRunner:
        return open_runner(self._settings(precision, slots, length, **how))

    def _settings(self, precision: str, slots: int, length: int, **how: bool) -> TargetSettings:
        return settings_of(self._setup, precision, slots=slots, length=length, **how)
