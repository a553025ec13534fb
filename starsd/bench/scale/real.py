"""The real tier: real models, one target at a time on one core, its hub on the other.

Stars reach Redis over a way that can be made longer. All services are up during the whole run, and
answer the same prompts in turn.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starsd.bench.exposition import less
from starsd.bench.machine import describe, load_average, two_cores
from starsd.bench.prompts import load_prompts, short, spread
from starsd.bench.scale.counters import memory_mb, of_hub, of_server, of_target, resident_mb
from starsd.bench.scale.delay import Delay
from starsd.bench.scale.setup import Setup
from starsd.bench.speed import NAME, Stopwatch
from starsd.bench.speed_result import Timed
from starsd.check.client import CONNECT_S, Question
from starsd.check.lab import Lab, Service

PLAIN, TWO_CORES = "plain", "plain-two-cores"
STAR, WAITING, AHEAD = "star", "star-waiting", "star-runahead"
STARS: Mapping[str, Mapping[str, str]] = {
    STAR: {},
    WAITING: {"depth_control": "fixed", "run_ahead": "off"},
    AHEAD: {"depth_control": "fixed", "run_ahead": "on"},
}
"""As it comes; one that asks and waits in every round; one that verifies what was foreseen
wherever something was, and asks and waits else."""
DELAYS_MS = (0, 2, 10)
"""Each way."""
READY_S = 300.0
PROMPTS = 6
MAX_TOKENS = 64
WARM_UP_TOKENS = 16
WAIT_BUDGET = 8.0
"""In plain steps: a way of 10 ms is longer than one."""
REPORTED_S = 1.6
"""By then everything is counted."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Leg:
    """One variant's answers at one delay. ``decoded`` tokens came after the first ones, in
    ``decode_s``; ``counted`` is the target's, ``hub`` its hub's."""

    variant: str
    delay_ms: float
    tokens_per_s: float
    decoded: int
    decode_s: float
    rounds: int
    steps: int
    """Those that went on an answer, with a proposal or without."""
    counted: dict[str, float]
    hub: dict[str, float]

    @property
    def foreseen(self) -> float:
        """Share of the rounds for which nobody was asked."""
        return self.counted.get("foreseen_taken", 0.0) / max(1.0, self.counted.get("rounds", 0.0))

    @property
    def wait_ms(self) -> float:
        """Of a round, for its proposal."""
        return 1000 * self.counted.get("wait_s", 0.0) / max(1, self.rounds)

    def part_s(self, part: str) -> float:
        """Of a round: draft, queue, network or verify."""
        return self.counted.get(f"{part}_s", 0.0) / max(1.0, self.counted.get("rounds", 0.0))


@dataclass(frozen=True)
class Real:
    """``bytes_per_round`` over Redis,
    both directions, registry included; ``memory_mb`` by role."""

    legs: list[Leg]
    bytes_per_round: float
    redis_us_per_round: float
    memory_mb: dict[str, float]
    machine: dict[str, Any]

    def leg(self, variant: str, delay_ms: float = 0) -> Leg | None:
        found = (one for one in self.legs if (one.variant, one.delay_ms) == (variant, delay_ms))
        return next(found, None)


def measure(setup: Setup, say: Say) -> Real:
    """Raises as ``starsd.bench.speed.measure`` does."""
    cores = two_cores()
    machine, load_before = describe(cores), load_average()
    with Lab(log_level="warning") as lab:
        assert lab.redis is not None
        with Delay(lab.redis.url) as way:
            say("real services start")
            services = _start(setup, lab, way, cores)
            bench = Bench(services, way, lab.redis.url)
            asyncio.run(bench.run(say))
            memory = _memory(lab)
    rounds = max(1, sum(leg.rounds for leg in bench.legs if leg.delay_ms == 0))
    used, passed = bench.server_s, bench.server_bytes
    return Real(
        legs=bench.legs,
        bytes_per_round=passed / rounds,
        redis_us_per_round=1e6 * used / rounds,
        memory_mb=memory,
        machine={**asdict(machine), "load_before": load_before, "load_after": load_average()},
    )


def _start(setup: Setup, lab: Lab, way: Delay, cores: tuple[int, int]) -> dict[str, Service]:
    """Targets come one by one: each times its first steps in quiet."""
    target_core, hub_core = cores
    engine = {
        "model": setup.model,
        "dtype": setup.dtype,
        "quantize": setup.quantize,
        "max_sequences": 2,
    }
    target = {**engine, "served_model_name": NAME, "ngram": 0}
    for star, own in STARS.items():
        arms = {"namespace": star, "redis_url": way.url, "wait_budget": WAIT_BUDGET, **own}
        ahead = {"run_ahead": "off" if own.get("run_ahead") == "off" else "auto"}
        hub = {"draft": setup.draft, "namespace": star, "cores": hub_core}
        lab.start(f"hub-{star}", "draft", **engine, **hub, **ahead).wait_ready(READY_S)
        lab.start(star, "target", cores=target_core, **target, **arms).wait_ready(READY_S)
    lab.wait_hubs()
    plain = {**target, "redis_url": "", "drafting": False}
    both = {"threads": 2, "cores": f"{target_core},{hub_core}"}
    lab.start(PLAIN, "target", cores=target_core, **plain).wait_ready(READY_S)
    lab.start(TWO_CORES, "target", **both, **plain).wait_ready(READY_S)
    return lab.services


class Bench:
    """Asks everybody everything. ``server_s`` and ``server_bytes`` are Redis's without delay."""

    def __init__(self, services: Mapping[str, Service], way: Delay, redis_url: str) -> None:
        self._services, self._way, self._redis_url = services, way, redis_url
        self._variants = [name for name in (*STARS, PLAIN, TWO_CORES) if name in services]
        self.legs: list[Leg] = []
        self.server_s, self.server_bytes = 0.0, 0.0

    async def run(self, say: Say) -> None:
        upstream = Stopwatch(CONNECT_S, ssl.create_default_context())
        try:
            for delay_ms in DELAYS_MS:
                say(f"real answers, {delay_ms} ms each way")
                self._way.seconds = delay_ms / 1000
                names = self._variants if not delay_ms else self._stars
                await self._ask_all(upstream, names, delay_ms)
        finally:
            await upstream.close()

    @property
    def _stars(self) -> list[str]:
        return [name for name in self._variants if name in STARS]

    async def _ask_all(self, upstream: Stopwatch, names: Sequence[str], delay_ms: float) -> None:
        await self._ask(upstream, names, WARM_UP_TOKENS, prompts=1)
        before, server = await self._counted(names), of_server(self._redis_url)
        timed = await self._ask(upstream, names, MAX_TOKENS, PROMPTS)
        after, used = await self._counted(names), less(of_server(self._redis_url), server)
        if not delay_ms:
            self.server_s = used["used_cpu_user"] + used["used_cpu_sys"]
            self.server_bytes = used["total_net_input_bytes"] + used["total_net_output_bytes"]
        for name in names:
            target, hub = (less(a, b) for a, b in zip(after[name], before[name], strict=True))
            self.legs.append(leg(name, delay_ms, timed[name], target, hub))

    async def _ask(
        self, upstream: Stopwatch, names: Sequence[str], max_tokens: int, prompts: int
    ) -> dict[str, list[Timed]]:
        """The same of all, one after the other, each time another one first."""
        timed: dict[str, list[Timed]] = {name: [] for name in names}
        for number, prompt in enumerate(spread(short(load_prompts()), prompts)):
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                question = Question(prompt.turns[0], number, 0.0, max_tokens)
                timed[name].append(await upstream.ask(self._services[name].url, question))
        return timed

    async def _counted(self, names: Sequence[str]) -> dict[str, tuple[dict[str, float], ...]]:
        """By each one's target and hub, once they have reported."""
        await asyncio.sleep(REPORTED_S)
        hubs = {name: self._services.get(f"hub-{name}") for name in names}
        return {
            name: (
                of_target(self._services[name].metrics()),
                of_hub(hub.metrics()) if (hub := hubs[name]) is not None else {},
            )
            for name in names
        }


def leg(
    variant: str,
    delay_ms: float,
    timed: Sequence[Timed],
    target: dict[str, float],
    hub: dict[str, float],
) -> Leg:
    """Of a variant's answers."""
    decoded, decode_s = sum(one.decoded for one in timed), sum(one.decode_s for one in timed)
    return Leg(
        variant=variant,
        delay_ms=delay_ms,
        tokens_per_s=decoded / decode_s,
        decoded=decoded,
        decode_s=decode_s,
        rounds=sum(one.answer.stats.rounds for one in timed),
        steps=sum(one.answer.stats.rounds + one.answer.stats.fallbacks for one in timed),
        counted=target,
        hub=hub,
    )


def _memory(lab: Lab) -> dict[str, float]:
    """By role."""
    target, hub = memory_mb(lab.services[STAR]), memory_mb(lab.services[f"hub-{STAR}"])
    assert lab.redis is not None
    found = {f"target {name}": size for name, size in target.items()}
    found |= {f"hub {name}": size for name, size in hub.items()}
    return {**found, "redis": resident_mb(lab.redis.pid or 0)}
