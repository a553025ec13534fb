"""From a setup to a result, in this process, on one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from starsd.bench.draft import costs, result
from starsd.bench.draft.drafts import Drafts, open_drafts, room
from starsd.bench.draft.replay import replay
from starsd.bench.draft.result import Drafted, Result, Told
from starsd.bench.draft.setup import LENGTH, Setup, check, target_settings
from starsd.bench.draft.texts import Question, Text, answer
from starsd.bench.engine.timing import Timer
from starsd.bench.machine import allowed_cores, describe, load_average
from starsd.bench.peers.server import pinned
from starsd.bench.prompts import Prompt, load_prompts, spread
from starsd.engine.interface import SlotState
from starsd.engine.loading import load_model
from starsd.errors import ConfigError
from starsd.log import only_warnings
from starsd.process.spawn import keep_heap
from starsd.protocol.sampling import SamplingParams
from starsd.sampling import compiled

REPEATS = 15
"""Of each timing."""

Say = Callable[[str], None]


def measure(setup: Setup, say: Say) -> tuple[Result, dict[str, Any]]:
    """Also the single times. ``say`` is told what is being done.

    Raises:
        ConfigError: an option cannot be, or target or a draft does not load.
        UnsupportedModelError: an architecture that the engine refuses.
    """
    check(setup)
    keep_heap()
    cores = allowed_cores()[:1]
    machine, load_before = describe(cores), load_average()
    with only_warnings(), pinned(cores):
        bench = Bench(setup, say)
        targets, drafts = bench.measure()
    facts = {**asdict(machine), "load_before": load_before, "load_after": load_average()}
    found = Result(
        targets=targets,
        drafts=drafts,
        left_out=bench.left_out,
        clock=bench.timer.kind,
        settings=asdict(setup),
        machine=facts,
    )
    return found, {"times_s": bench.timer.raw}


class Bench:
    """The target and all drafts, loaded at once, so that their steps are timed in turn."""

    def __init__(self, setup: Setup, say: Say) -> None:
        self._setup, self._say = setup, say
        self.timer = Timer(1, REPEATS)
        self._eos, prompts = encoded(setup, spread(load_prompts(), setup.prompts))
        longest = max(map(len, prompts)) + self._beyond
        settings = target_settings(setup, longest)
        compiled.install(settings.cache_dir)
        self._target = load_model(settings).runner()
        if self._target.state is not SlotState.ROLLS_BACK:
            raise ConfigError(
                f"{setup.model}: its state cannot roll back, and this measures no such"
            )
        opened = open_drafts(setup, self._target, longest)
        self._drafts = Drafts(opened, self._target.vocab_size, settings.draft_context)
        if self._drafts.taps:
            self._target.tap(self._drafts.taps)
        limit = room(opened, self._target) - self._beyond
        self._prompts = {seed: ids for seed, ids in enumerate(prompts) if len(ids) <= limit}
        self.left_out = len(prompts) - len(self._prompts)

    @property
    def _beyond(self) -> int:
        """Positions after a prompt: its answer, and a proposal at its end."""
        return self._setup.max_tokens + 1 + max(map(max, self._setup.shapes.values()))

    def measure(self) -> tuple[list[Told], list[Drafted]]:
        targets, drafts = [], []
        for temperature in self._setup.temperatures:
            target, found = self._at(temperature)
            targets.append(target)
            drafts += found
        return targets, sorted(drafts, key=lambda one: self._setup.drafts.index(one.draft))

    def _at(self, temperature: float) -> tuple[Told, list[Drafted]]:
        self._say(f"temperature {temperature:g}: the target's {len(self._prompts)} answers")
        texts = self._answers(temperature)
        self._say(f"temperature {temperature:g}: costs")
        shapes = self._setup.shapes
        paid = costs.measure(
            self._target, self._drafts, texts, shapes, self.timer, f"temperature {temperature:g}"
        )
        found = []
        for draft in self._drafts.all:
            self._say(f"temperature {temperature:g}: {draft.name}")
            replayed = {
                name: list(replay(self._drafts, draft, texts, shape))
                for name, shape in shapes.items()
                if name in draft.makes
            }
            found.append(result.drafted(draft.name, temperature, replayed, paid, self._setup.depth))
        return result.told(temperature, texts, paid), found

    def _answers(self, temperature: float) -> list[Text]:
        """Asked as ``starsd bench speed`` asks."""
        questions = [
            Question(
                ids,
                len(ids) + self._setup.max_tokens,
                SamplingParams(seed=seed, temperature=temperature),
            )
            for seed, ids in self._prompts.items()
        ]
        return answer(self._target, questions, self._eos, tapped=bool(self._drafts.taps))


def encoded(setup: Setup, prompts: Sequence[Prompt]) -> tuple[tuple[int, ...], list[list[int]]]:
    """The ids that end an answer, and those of each prompt."""
    tokenizer = load_model(target_settings(setup, LENGTH)).tokenizer()
    messages = ([{"role": "user", "content": prompt.turns[0]}] for prompt in prompts)
    return tokenizer.eos_ids, list(map(tokenizer.encode_chat, messages))
