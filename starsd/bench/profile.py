"""Where a step's time goes at target and hub: a real star serves a batch of answers at once.

The services count a step's parts for everybody (``starsd:step_part_seconds_total``); this looks
at the counters twice while the whole batch decodes. Target and hub are pinned to a core each.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from starsd.bench.machine import describe, load_average, two_cores
from starsd.bench.profile_result import (
    FILTERED,
    GREEDY,
    HUB,
    TARGET,
    Counters,
    Result,
    Window,
    read_counters,
    summarise,
)
from starsd.bench.prompts import load_prompts, short, spread
from starsd.check.client import CONNECT_S
from starsd.check.lab import POLL_S, Lab, Service
from starsd.errors import ConfigError, DeadlineError, RemoteError
from starsd.protocol.events import Delta, Error, Generate
from starsd.protocol.sampling import SamplingParams
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings
from starsd.upstream import Upstream

NAME = "profiled"
NO_DRAFT = "none"
ENDLESS = "starsd.bench.endless:EndlessModel"
READY_S = 300.0
WARM_UP_TOKENS = 12
"""Of each answer before we look: by then the hub has every prompt too."""
MAX_LENGTH = 4096
"""Room for any prompt and what the quickest answer says while the slowest says ``tokens``: one that
loops comes several times as fast. Metrics are up to a second old at either end."""
MAX_TOKENS = 512
NEWS_S = 10.0
"""Services report their metrics every second, and between two steps."""
ANSWER_S = 600.0


@dataclass(frozen=True)
class Setup:
    """What to measure. ``tokens`` of each answer are waited for between the two looks."""

    model: str
    draft: str
    dtype: str
    quantize: str
    wait_budget: float
    batches: tuple[int, ...]
    samplings: tuple[str, ...]
    tokens: int
    temperature: float
    top_p: float
    top_k: int

    def params(self, sampling: str, seed: int) -> SamplingParams:
        if sampling == GREEDY:
            return SamplingParams(seed=seed, temperature=0.0)
        if sampling == FILTERED:
            return SamplingParams(
                seed=seed, temperature=self.temperature, top_p=self.top_p, top_k=self.top_k
            )
        return SamplingParams(seed=seed, temperature=self.temperature)


def measure(setup: Setup, lab: Lab, tick: Callable[[], None] = lambda: None) -> Result:
    """Start a star in ``lab`` and look at it; ``tick`` follows each batch.

    Call it from the main thread, with whose end services end.

    Raises:
        ConfigError: a bad setting, fewer than two cores, or answers too short.
        UnavailableError, DeadlineError: a service that did not come up, or stands still.
        RemoteError, TransportError: an answer that failed.
    """
    check(setup)
    cores = two_cores()
    machine, load_before = describe(cores), load_average()
    services = start(lab, setup, cores)
    windows = asyncio.run(_look_at_all(setup, services, tick))
    facts = {**asdict(machine), "load_before": load_before, "load_after": load_average()}
    return summarise(windows, asdict(setup), facts)


def check(setup: Setup) -> None:
    """Tell a bad setting before anything is started. Raises ConfigError."""
    load(
        TargetSettings,
        model=setup.model,
        dtype=setup.dtype,
        quantize=setup.quantize,
        wait_budget=setup.wait_budget,
        max_sequences=max(setup.batches),
    )


def turns(setup: Setup) -> Iterator[tuple[int, str]]:
    """Batches and samplings in the order they are measured in."""
    return itertools.product(setup.batches, setup.samplings)


def start(lab: Lab, setup: Setup, cores: tuple[int, int]) -> dict[str, Service]:
    """The target, and its hub unless there is no draft."""
    target_core, hub_core = cores
    engine = {
        "model": setup.model,
        "dtype": setup.dtype,
        "quantize": setup.quantize,
        "max_sequences": max(setup.batches),
        "max_length": MAX_LENGTH,
    }
    drafting = setup.draft != NO_DRAFT
    if drafting:
        lab.start(HUB, "draft", cores=hub_core, draft=setup.draft, **engine)
        lab.wait_ready(READY_S)
    own = {"scripted": ENDLESS, "served_model_name": NAME, "drafting": drafting, "prefix_cache": 0}
    every_round = {"wait_budget": setup.wait_budget, "depth_control": "fixed"}
    lab.start(TARGET, "target", cores=target_core, **every_round, **engine, **own).wait_ready(
        READY_S
    )
    if drafting:
        lab.wait_hubs()
    return {name: lab.services[name] for name in (TARGET, HUB) if name in lab.services}


async def _look_at_all(
    setup: Setup, services: Mapping[str, Service], tick: Callable[[], None]
) -> list[Window]:
    upstream = Upstream(CONNECT_S, ssl.create_default_context())
    windows = []
    try:
        for batch, sampling in turns(setup):
            answers = Answers(upstream, services[TARGET].url, requests(setup, batch, sampling))
            async with asyncio.timeout(ANSWER_S), answers.running():
                counted = await _look(setup, services, answers)
            windows += [Window(name, batch, sampling, one) for name, one in counted.items()]
            tick()
    finally:
        await upstream.close()
    return windows


def requests(setup: Setup, batch: int, sampling: str) -> list[Generate]:
    """So many, of different prompts as far as there are enough."""
    prompts = itertools.cycle(spread(short(load_prompts()), batch))
    return [
        Generate(
            id=f"{sampling}-{batch}-{number}",
            model=NAME,
            messages=[{"role": "user", "content": prompt.turns[0]}],
            sampling=setup.params(sampling, number),
        )
        for number, prompt in zip(range(batch), prompts, strict=False)
    ]


async def _look(
    setup: Setup, services: Mapping[str, Service], answers: Answers
) -> dict[str, Counters]:
    """What each service counts between two looks, with all answers decoding all the while."""
    await answers.reach(WARM_UP_TOKENS)
    before = await _news(services)
    await answers.reach(min(answers.tokens) + setup.tokens)
    after = await _news(services)
    answers.check()
    return {name: after[name].since(before[name]) for name in services}


async def _news(services: Mapping[str, Service]) -> dict[str, Counters]:
    """Counters of each that are newer than this call. Raises DeadlineError."""
    found = await asyncio.gather(*(asyncio.to_thread(news, one) for one in services.values()))
    return dict(zip(services, found, strict=True))


def news(service: Service) -> Counters:
    """A report of its loop that has yet to come. Raises DeadlineError."""
    deadline = time.monotonic() + NEWS_S
    old = read_counters(service.metrics())
    while (new := read_counters(service.metrics())) == old:
        if time.monotonic() > deadline:
            raise DeadlineError(f"the {service.name} has taken no step for {NEWS_S:.0f} s")
        time.sleep(POLL_S)
    return new


class Answers:
    """A batch of answers that run until they are left. ``tokens`` of each so far."""

    def __init__(self, upstream: Upstream, url: str, asked: Sequence[Generate]) -> None:
        self._upstream = upstream
        self._url = url
        self._asked = asked
        self._tasks: list[asyncio.Task[None]] = []
        self.tokens = [0] * len(asked)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._tasks = [asyncio.create_task(self._follow(*one)) for one in enumerate(self._asked)]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reach(self, tokens: int) -> None:
        """Until each has so many. Raises what ``check`` does."""
        while min(self.tokens) < tokens:
            self.check()
            await asyncio.sleep(POLL_S)

    def check(self) -> None:
        """Raises ConfigError if one ran out of context, or whatever made one fail."""
        for task in self._tasks:
            if task.done():
                task.result()
                raise ConfigError(
                    f"an answer reached {MAX_LENGTH} positions: lower --tokens", param="--tokens"
                )

    async def _follow(self, number: int, request: Generate) -> None:
        async with contextlib.aclosing(self._upstream.generate(self._url, request)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    self.tokens[number] += len(event.ids)
                elif isinstance(event, Error):
                    raise RemoteError(event.error)
