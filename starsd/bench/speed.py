"""Plain decoding, speculation on one core, and the star: the same prompts, one after the other.

All three are real services with the same weights. The target of each is pinned to the first core.
The star's hub has the second core; the co-located hub shares the target's, as speculation on one
core does. Fronts, Redis and this client are pinned nowhere: they find the second core idle, except
beside the star's hub. All are up during the whole run, and only one works at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from starsd.bench.exposition import Exposition
from starsd.bench.machine import describe, load_average, two_cores
from starsd.bench.prompts import Prompt, load_prompts, spread
from starsd.bench.speed_result import VARIANTS, Counts, Result, Timed, summarise
from starsd.check.client import CONNECT_S, Question, ask
from starsd.check.lab import POLL_S, Lab, Service
from starsd.errors import ConfigError, DeadlineError
from starsd.protocol.events import Delta, Event, Generate
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings
from starsd.upstream import Upstream

NAME = "measured"
NO_DRAFT = "none"
READY_S = 300.0
ANSWER_S = 600.0
SETTLE_S = 10.0
"""Metrics are a second old at most."""
SEQUENCES = 2
"""One is served at a time; a hub may still hold the one before."""
WARM_UP_TOKENS = 16
OTHER_PLAIN = {
    "plain int8": {"dtype": "auto", "quantize": "int8"},
    "plain int4": {"dtype": "auto", "quantize": "int4"},
    "plain bf16": {"dtype": "bfloat16", "quantize": "none"},
}
"""Plain decoding in our other precisions: what a star has to beat in the end."""


@dataclass(frozen=True)
class Setup:
    """What to measure. ``prompts`` 0: all; ``others``: plain decoding in other precisions too."""

    model: str
    draft: str
    dtype: str
    quantize: str
    depth: int
    nodes: int
    wait_budget: float
    invariant: bool
    others: bool
    prompts: int
    max_tokens: int
    temperature: float
    repeats: int

    @property
    def batch_invariant(self) -> bool:
        """The star must give plain decoding's answers, bit for bit. Quantised models always do."""
        return self.invariant or self.quantize != "none"

    @property
    def variants(self) -> tuple[str, ...]:
        """Whom each prompt is put to."""
        mine = {"dtype": self.dtype, "quantize": self.quantize}
        others = [name for name, precision in OTHER_PLAIN.items() if precision != mine]
        return (*VARIANTS, *others) if self.others else VARIANTS

    def question(self, prompt: Prompt, seed: int) -> Question:
        return Question(prompt.turns[0], seed, self.temperature, self.max_tokens)


def measure(
    setup: Setup, lab: Lab, tick: Callable[[], None] = lambda: None
) -> tuple[Result, list[Timed]]:
    """Start all services in ``lab`` and ask them; ``tick`` follows each answer.

    Call it from the main thread, with whose end services end.

    Raises:
        ConfigError: a bad setting, fewer than two cores, or no answer that has a speed.
        UnavailableError, DeadlineError: a service that did not come up.
        RemoteError, TransportError: an answer that failed.
    """
    check(setup)
    cores = two_cores()
    machine, load_before = describe(cores), load_average()
    prompts = spread(load_prompts(), setup.prompts)
    targets = start(lab, setup, cores)
    timed, counts = asyncio.run(_ask_all(setup, prompts, targets, tick))
    facts = {**asdict(machine), "load_before": load_before, "load_after": load_average()}
    settings = {**asdict(setup), "prompts": len(prompts)}
    result = summarise(timed, counts, settings, facts, batch_invariant=setup.batch_invariant)
    return result, timed


def check(setup: Setup) -> None:
    """Tell a bad setting before anything is started. Raises ConfigError."""
    if setup.draft == NO_DRAFT:
        raise ConfigError("there is no star without a draft", param="--draft")
    load(
        TargetSettings,
        model=setup.model,
        dtype=setup.dtype,
        quantize=setup.quantize,
        draft_depth=setup.depth,
        draft_nodes=setup.nodes,
        wait_budget=setup.wait_budget,
    )


def calls(setup: Setup) -> int:
    """Answers that ``measure`` waits for."""
    return len(setup.variants) * setup.repeats * len(spread(load_prompts(), setup.prompts))


def start(lab: Lab, setup: Setup, cores: tuple[int, int]) -> dict[str, Service]:
    """The target of each variant. Targets come one by one: each times its first steps in quiet."""
    target_core, hub_core = cores
    engine = {
        "model": setup.model,
        "dtype": setup.dtype,
        "quantize": setup.quantize,
        "batch_invariant": setup.invariant,
        "max_sequences": SEQUENCES,
    }
    hub = {**engine, "draft": setup.draft, "max_depth": setup.depth}
    lab.start("star-hub", "draft", namespace="star", cores=hub_core, **hub)
    lab.start("colocated-hub", "draft", namespace="colocated", cores=target_core, **hub)
    lab.wait_ready(READY_S)
    target = {**engine, "served_model_name": NAME, "cores": target_core, "prefix_cache": 0}
    drafting = {
        "draft_depth": setup.depth,
        "draft_nodes": setup.nodes,
        "wait_budget": setup.wait_budget,
        "ngram": 0,
    }
    for star in ("star", "colocated"):
        lab.start(star, "target", namespace=star, **target, **drafting).wait_ready(READY_S)
    lab.wait_hubs()
    for variant in setup.variants:
        if variant not in lab.services:
            own = target | OTHER_PLAIN.get(variant, {})
            lab.start(variant, "target", redis_url="", drafting=False, ngram=0, **own)
            lab.services[variant].wait_ready(READY_S)
    return {variant: lab.services[variant] for variant in setup.variants}


async def _ask_all(
    setup: Setup,
    prompts: Sequence[Prompt],
    targets: Mapping[str, Service],
    tick: Callable[[], None],
) -> tuple[list[Timed], Counts]:
    """Every answer, and what the star's target counted meanwhile."""
    upstream = Stopwatch(CONNECT_S, ssl.create_default_context())
    question = Question(prompts[0].turns[0], 0, setup.temperature, WARM_UP_TOKENS)
    try:
        warm = {
            variant: await upstream.ask(service.url, question)
            for variant, service in targets.items()
        }
        before = await _counted(targets["star"], warm["star"].answer.stats.rounds)
        timed = []
        for number, repeat, prompt, variant in _turns(prompts, setup):
            asked = setup.question(prompt, number)
            one = await upstream.ask(targets[variant].url, asked)
            timed.append(one.of(prompt, variant, repeat))
            tick()
    finally:
        await upstream.close()
    rounds = sum(one.answer.stats.rounds for one in timed if one.variant == "star")
    return timed, (await _counted(targets["star"], before.rounds + rounds)).since(before)


def _turns(prompts: Sequence[Prompt], setup: Setup) -> Iterator[tuple[int, int, Prompt, str]]:
    """Who answers what when: every variant the same prompt, each time another one first."""
    turn, variants = 0, setup.variants
    for repeat in range(setup.repeats):
        for number, prompt in enumerate(prompts):
            first = turn % len(variants)
            for variant in variants[first:] + variants[:first]:
                yield number, repeat, prompt, variant
            turn += 1


async def _counted(target: Service, rounds: float) -> Counts:
    """The target's counters, once they tell of so many rounds. Raises DeadlineError."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        counts = read_counts(await asyncio.to_thread(target.metrics))
        if counts.rounds >= rounds:
            return counts
        if time.monotonic() > deadline:
            raise DeadlineError(f"{target.name} counts {counts.rounds:.0f} of {rounds:.0f} rounds")
        await asyncio.sleep(POLL_S)


def read_counts(exposition: str) -> Counts:
    """From the text of a target's /metrics."""
    found = Exposition(exposition)
    return Counts(
        rounds=found.value("starsd:spec_decode_num_drafts_total"),
        proposed=found.labelled("starsd:spec_decode_num_drafts_reaching_total"),
        accepted=found.labelled("starsd:spec_decode_num_accepted_tokens_total"),
        seconds=found.labelled("starsd:round_seconds_total"),
    )


class Stopwatch(Upstream):
    """Asks one question at a time, and notes when its tokens come."""

    _begun = 0.0
    _came: list[tuple[float, int]]

    async def ask(self, url: str, question: Question) -> Timed:
        async with asyncio.timeout(ANSWER_S):
            answer = await ask(self, url, NAME, question)
        (first, count), (last, _) = self._came[0], self._came[-1]
        return Timed(
            answer=answer,
            ttft_s=first - self._begun,
            decode_s=last - first,
            decoded=len(answer.ids) - count,
        )

    async def generate(self, url: str, request: Generate) -> AsyncGenerator[Event, None]:
        self._begun, self._came = time.perf_counter(), []
        async with contextlib.aclosing(super().generate(url, request)) as events:
            async for event in events:
                if isinstance(event, Delta) and event.ids:
                    self._came.append((time.perf_counter(), len(event.ids)))
                yield event
