"""A whole star of real processes over a real Redis, with scripted models: what faults hit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx
import openai
import psutil
from openai.types.chat import ChatCompletionChunk
from openai.types.completion_usage import CompletionUsage
from prometheus_client.parser import text_string_to_metric_families

from starsd.bus.server import EmbeddedRedis
from starsd.check.lab import POLL_S, Lab, Service

MODEL = "scripted"
STEP_S = 0.02
"""Of a target; the hub's model answers at once."""
UNDER_WAY = 5
"""Chunks every stream has delivered before a fault strikes."""
LOST_S = 3.0
"""How long a target may be silent before the gateway takes its requests away."""
DEADLINE_S = 60.0
Settings = Mapping[str, Any]
SCRIPTED_TARGET: Settings = {"scripted": "tests.scripted:HashModel"}
SCRIPTED_HUB: Settings = {"scripted": "tests.scripted:DriftModel", "seq_idle_s": 3.0}
FAST_REGISTRY = {"heartbeat_s": 0.2, "pod_ttl_s": 2.0}


@dataclass(frozen=True)
class Question:
    prompt: str
    seed: int
    temperature: float = 0.0
    max_tokens: int = 100

    @property
    def body(self) -> dict[str, Any]:
        return {
            "model": MODEL,
            "messages": [{"role": "user", "content": self.prompt}],
            "seed": self.seed,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }


def questions(count: int, first: int = 0, max_tokens: int = 100) -> list[Question]:
    """Greedy ones and sampled ones in turn."""
    seeds = range(first, first + count)
    return [Question(f"question {s}", s, 0.8 * (s % 2), max_tokens) for s in seeds]


@dataclass
class Heard:
    """What a client got of one answer; ``starsd`` is our extension field."""

    text: str = ""
    reason: str | None = None
    usage: CompletionUsage | None = None
    starsd: dict[str, Any] = field(default_factory=dict)
    chunks: int = 0
    error: openai.APIError | None = None
    under_way: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, chunk: ChatCompletionChunk) -> None:
        self.chunks += 1
        if self.chunks == UNDER_WAY:
            self.under_way.set()
        self.usage = chunk.usage or self.usage
        self.starsd = (chunk.model_extra or {}).get("starsd", self.starsd)
        for choice in chunk.choices:
            self.text += choice.delta.content or ""
            self.reason = choice.finish_reason or self.reason


class LiveStar:
    """Gateway, hub ``hub``, targets ``a`` and ``b``, a target ``plain`` that the gateway does not
    know and that asks no hub, and its own gateway ``reference``. Every one may be harmed."""

    def __init__(
        self,
        *,
        redis: EmbeddedRedis | None = None,
        step_s: float = STEP_S,
        target: Settings = SCRIPTED_TARGET,
        hub: Settings = SCRIPTED_HUB,
    ) -> None:
        """``redis``: one that the test starts and stops, in place of the lab's own."""
        self.lab = Lab(redis.url if redis else None, **FAST_REGISTRY)
        self._redis = redis
        self._step_s = step_s
        self._target = target
        self._hub = hub

    def __enter__(self) -> Self:
        self.lab.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for service in self.lab.services.values():
            service.kill()  # quick, and it also ends what is stopped
        self.lab.__exit__(kind, error, trace)

    # -- parts -----------------------------------------------------------------------------------

    @property
    def redis(self) -> EmbeddedRedis:
        redis = self._redis or self.lab.redis
        assert redis is not None
        return redis

    def __getitem__(self, name: str) -> Service:
        return self.lab.services[name]

    @property
    def targets(self) -> list[Service]:
        return [self["a"], self["b"]]

    def start(self, *names: str) -> None:
        """Start the parts named, targets before their gateway. Does not wait until ready."""
        for name in names:
            if name in self.lab.services:
                self[name].start()
            elif name == "hub":
                with scripted_step(0.0):
                    self.lab.start(name, "draft", **self._hub)
            elif name in ("gateway", "reference"):
                behind = ("a", "b") if name == "gateway" else ("plain",)
                self._start_gateway(name, [self[target] for target in behind])
            else:
                self._start_target(name)

    def start_all(self) -> None:
        self.start("plain", "a", "b", "hub", "gateway", "reference")

    def _start_target(self, name: str) -> None:
        alone = {"drafting": False, "redis_url": ""} if name == "plain" else {}
        with scripted_step(0.0 if alone else self._step_s):
            settings = {"served_model_name": MODEL, **self._target, **alone}
            self.lab.start(name, "target", **settings)

    def _start_gateway(self, name: str, targets: Sequence[Service]) -> None:
        urls = json.dumps([target.url for target in targets])
        star = {} if name == "gateway" else {"redis_url": ""}
        self.lab.start(name, "gateway", targets=urls, target_lost_s=LOST_S, **star)

    def repair(self, *names: str) -> None:
        """Undo what was done to the parts named: stopped ones go on, dead ones are started."""
        if self.lab.redis is not None:
            if self.lab.redis.alive:
                os.kill(self.lab.redis.pid or 0, signal.SIGCONT)
            self.lab.redis.start()
        for name in names:
            service = self[name]
            if service.process is not None and service.process.poll() is None:
                os.killpg(service.process.pid, signal.SIGCONT)
            else:
                service.kill()
                service.start()

    def wait_whole(self) -> None:
        """Wait until all parts are ready, both targets draft with the hub, and nothing runs."""
        for service in self.lab.services.values():
            service.wait_ready(DEADLINE_S)
        for target in self.targets:
            eventually(partial(uses_hub, target), f"{target.name} uses the hub")
        eventually(self._both_draft, "both targets get proposals in time")
        eventually(lambda: self.idle, "nothing runs")

    def _both_draft(self) -> bool:
        """Asking also closes breakers that are open: only a timely reply does that."""
        heard = self.through(questions(4, first=9000, max_tokens=20))
        texts(heard)
        return {one.starsd["target"] for one in heard if one.starsd["rounds"]} == {"a", "b"}

    @property
    def idle(self) -> bool:
        """All that the metrics show; they may be a second old."""
        live = value(self["gateway"], "starsd:targets_live") == 2
        return live and all(quiet(target) for target in self.targets)

    # -- asking ----------------------------------------------------------------------------------

    def plain(self, asked: Sequence[Question]) -> list[Heard]:
        """The truth: plain decoding, without a star."""
        return asyncio.run(self._ask(asked, "reference"))

    def through(
        self,
        asked: Sequence[Question],
        fault: Callable[[], object] | None = None,
        gateway: str = "gateway",
    ) -> list[Heard]:
        """Stream all answers at once; ``fault`` strikes when every one is under way."""
        return asyncio.run(self._ask(asked, gateway, fault))

    async def _ask(
        self,
        asked: Sequence[Question],
        gateway: str,
        fault: Callable[[], object] | None = None,
    ) -> list[Heard]:
        heard = [Heard() for _ in asked]
        async with self.async_client(gateway) as client, asyncio.timeout(DEADLINE_S):
            readers = [
                asyncio.create_task(_listen(client, question, one))
                for question, one in zip(asked, heard, strict=True)
            ]
            if fault is not None:
                await asyncio.gather(*(one.under_way.wait() for one in heard))
                assert not any(one.reason or one.error for one in heard), "ended before the fault"
                fault()  # here, not in a thread: children die with the thread that started them
            await asyncio.gather(*readers)
        return heard

    def client(self, gateway: str = "gateway") -> openai.OpenAI:
        url = f"{self[gateway].url}/v1"
        return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=DEADLINE_S)

    def async_client(self, gateway: str = "gateway") -> openai.AsyncOpenAI:
        url = f"{self[gateway].url}/v1"
        return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=DEADLINE_S)


async def _listen(client: openai.AsyncOpenAI, question: Question, heard: Heard) -> None:
    options: Any = {"include_usage": True}
    try:
        stream = await client.chat.completions.create(
            **question.body, stream=True, stream_options=options
        )
        async with stream:
            async for chunk in stream:
                heard.note(chunk)
    except openai.APIError as error:
        heard.error = error
    finally:
        heard.under_way.set()


@contextmanager
def scripted_step(seconds: float) -> Iterator[None]:
    """Services started within take so long for a forward."""
    os.environ["SCRIPTED_STEP_S"] = str(seconds)
    try:
        yield
    finally:
        del os.environ["SCRIPTED_STEP_S"]


# -- observing -----------------------------------------------------------------------------------


def texts(heard: Sequence[Heard]) -> list[tuple[str, str | None]]:
    """What must be the same whatever happens."""
    for one in heard:
        if one.error is not None:
            raise AssertionError("an answer failed") from one.error
    return [(one.text, one.reason) for one in heard]


def value(service: Service, name: str, **labels: str) -> float:
    """Sum of the samples of that name with these labels; 0 if there is none."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(service.metrics())
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def rounds(star: LiveStar) -> float:
    """Proposals verified by both targets so far."""
    return sum(value(target, "starsd:spec_decode_num_drafts_total") for target in star.targets)


def health(service: Service, kind: str = "ready") -> dict[str, Any]:
    """Status code (``code``) and body of a health check."""
    answer = httpx.get(f"{service.metrics_url}/health/{kind}", timeout=5.0)
    return {"code": answer.status_code, **answer.json()}


def uses_hub(target: Service) -> bool:
    return bool(health(target)["hubs_usable"])


def forgot_hub(target: Service) -> bool:
    return not uses_hub(target)


def quiet(service: Service) -> bool:
    """No request, and no slot in use."""
    running = value(service, "starsd:num_requests_running")
    return running == value(service, "starsd:kv_cache_usage_perc") == 0


def loop_of(service: Service) -> psutil.Process:
    """The step loop's process of a model service."""
    assert service.process is not None
    children = psutil.Process(service.process.pid).children(recursive=True)
    loops = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(loops) == 1, children
    return loops[0]


def signal_pod(service: Service, number: signal.Signals) -> None:
    """A signal to all processes of a service."""
    assert service.process is not None
    os.killpg(service.process.pid, number)


def eventually(condition: Callable[[], object], what: str, within_s: float = DEADLINE_S) -> None:
    """Wait for a condition. Raises AssertionError at the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(POLL_S)
