"""What is started how, what is asked, and when the counters are looked at. No service runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from starsd.bench import profile
from starsd.bench.profile import Answers, Setup, check, news, requests, start, turns
from starsd.bench.profile_result import Counters
from starsd.errors import ConfigError, DeadlineError, ErrorBody, RemoteError
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Generate, Usage
from starsd.protocol.frames import FinishReason, Origin, RequestStats
from starsd.protocol.sampling import SamplingParams
from tests.unit.bench.test_speed import FakeLab

SETUP = Setup(
    model="m",
    draft="layers:3",
    dtype="float32",
    quantize="int8",
    wait_budget=7.5,
    batches=(1, 5),
    samplings=("greedy", "filtered"),
    tokens=8,
    temperature=0.7,
    top_p=0.9,
    top_k=40,
)


@pytest.fixture
def lab() -> Any:
    return FakeLab()


# -- services ------------------------------------------------------------------------------------


def test_a_core_for_each_and_room_for_the_largest_batch(lab: Any) -> None:
    """model, dtype, quantize, draft, batch."""
    assert list(start(lab, SETUP, (4, 7))) == ["target", "hub"]
    hub, target = lab.settings["hub"], lab.settings["target"]
    assert (hub["kind"], hub["cores"], hub["draft"]) == ("draft", 7, "layers:3")
    assert (target["kind"], target["cores"], target["wait_budget"]) == ("target", 4, 7.5)
    for one in (hub, target):
        found = (one["model"], one["dtype"], one["quantize"], one["max_sequences"])
        assert found == ("m", "float32", "int8", 5)
    assert target["scripted"] == profile.ENDLESS
    assert "scripted" not in hub
    assert lab.order == ["start hub", "wait all", "start target", "wait target", "wait hubs"]


def test_without_a_draft_there_is_no_hub(lab: Any) -> None:
    assert list(start(lab, replace(SETUP, draft="none"), (0, 1))) == ["target"]
    assert lab.settings["target"]["drafting"] is False
    assert lab.order == ["start target", "wait target"]


@pytest.mark.parametrize("bad", [{"dtype": "bf16"}, {"quantize": "int3"}, {"batches": (1, 2000)}])
def test_a_bad_setting_is_told_before_anything_starts(lab: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        profile.measure(replace(SETUP, **bad), lab)
    assert lab.order == []
    check(SETUP)


# -- what is asked -------------------------------------------------------------------------------


def test_every_batch_with_every_sampling() -> None:
    assert list(turns(SETUP)) == [
        (1, "greedy"),
        (1, "filtered"),
        (5, "greedy"),
        (5, "filtered"),
    ]


def test_samplings() -> None:
    """temperature, top_p, top_k."""
    assert SETUP.params("greedy", 3) == SamplingParams(seed=3, temperature=0.0)
    assert SETUP.params("filtered", 3) == SamplingParams(
        seed=3, temperature=0.7, top_p=0.9, top_k=40
    )
    assert SETUP.params("unfiltered", 3) == SamplingParams(seed=3, temperature=0.7)


def test_a_batch_of_different_short_prompts() -> None:
    asked = requests(SETUP, 5, "greedy")
    assert len({one.messages[0]["content"] for one in asked}) == len(asked) == 5
    assert max(len(one.messages[0]["content"]) for one in asked) <= 600
    assert {one.max_tokens for one in asked} == {None}
    assert len({one.id for one in asked}) == 5


def test_more_answers_than_prompts() -> None:
    asked = requests(SETUP, 100, "filtered")
    assert len(asked) == 100
    assert len({one.sampling.seed for one in asked}) == 100


# -- counters ------------------------------------------------------------------------------------


class Reports:
    """A service whose report changes after some looks."""

    name = "target"

    def __init__(self, after: int) -> None:
        self._left = after

    def metrics(self) -> str:
        self._left -= 1
        return f"starsd:step_seconds_count {5 if self._left >= 0 else 9}\n"


def test_news_is_a_report_yet_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "POLL_S", 0.001)
    service: Any = Reports(after=4)
    assert news(service).steps == 9
    service = Reports(after=10_000)
    monkeypatch.setattr(profile, "NEWS_S", 0.02)
    with pytest.raises(DeadlineError, match="the target has taken no step"):
        news(service)


# -- answers -------------------------------------------------------------------------------------


class Target:
    """Streams a token for each ``more``; ends as ``last`` says."""

    def __init__(self, last: Event | None = None, limit: int = 10**6) -> None:
        self.open = 0
        self.steps = 0
        self._last = last
        self._limit = limit

    async def generate(self, url: str, request: Generate) -> AsyncGenerator[Event, None]:
        self.open += 1
        try:
            yield Begin(prompt_ids=[1], seed=0, fingerprint="f")
            for _ in range(self._limit):
                await asyncio.sleep(0)
                self.steps += 1
                yield Delta(ids=[7, 8], origins=[Origin.PLAIN] * 2, text="x")
            if self._last is not None:
                yield self._last
        finally:
            self.open -= 1

    async def close(self) -> None: ...


def answers(target: Target, count: int = 2) -> Answers:
    upstream: Any = target
    return Answers(upstream, "http://target", requests(SETUP, count, "greedy"))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "POLL_S", 0.001)


async def test_answers_run_until_they_are_left() -> None:
    target = Target()
    running = answers(target)
    async with running.running():
        await running.reach(6)
        assert min(running.tokens) >= 6
        assert target.open == 2
    assert target.open == 0


async def test_an_answer_that_ends_spoils_the_batch() -> None:
    done = Done(
        reason=FinishReason.LENGTH,
        usage=Usage(prompt_tokens=1, completion_tokens=4),
        stats=RequestStats(),
    )
    running = answers(Target(done, limit=2))
    async with running.running():
        with pytest.raises(ConfigError, match="lower --tokens"):
            await running.reach(6)


async def test_an_answer_that_fails() -> None:
    body = ErrorBody(message="the engine failed", type="server_error", code=None, status=500)
    running = answers(Target(Error(error=body), limit=1))
    async with running.running():
        with pytest.raises(RemoteError, match="the engine failed"):
            await running.reach(6)


async def test_looks_are_taken_while_all_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """tokens: at least so many of each lie between the looks, after a warm-up."""
    target = Target()
    running = answers(target)
    looks: list[int] = []

    def look(service: Any) -> Counters:
        looks.append(min(running.tokens))
        return Counters(steps=target.steps)

    monkeypatch.setattr(profile, "news", look)
    services: Any = {"target": SimpleNamespace()}
    async with running.running():
        found = await profile._look(SETUP, services, running)
    first, second = looks
    assert first >= profile.WARM_UP_TOKENS
    assert second - first >= SETUP.tokens
    assert found["target"].steps >= SETUP.tokens / 2


def test_all_turns_give_a_window_of_each_service(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target, ticks = Target(), []
    monkeypatch.setattr(profile, "Upstream", lambda *_: target)
    monkeypatch.setattr(profile, "two_cores", lambda: (0, 1))
    seconds = {"matrices": 1.0, "sampling": 0.5}

    def look(service: Any) -> Counters:
        ticks.append(service.name)
        scale = len(ticks)
        return Counters(
            steps=scale, seconds={part: scale * value for part, value in seconds.items()}
        )

    monkeypatch.setattr(profile, "news", look)
    done: list[int] = []
    result = profile.measure(SETUP, lab, lambda: done.append(1))
    assert [(one.service, one.batch, one.sampling) for one in result.profiles] == [
        (service, batch, sampling)
        for batch, sampling in turns(SETUP)
        for service in ("target", "hub")
    ]
    assert all(one.outside_matrices == pytest.approx(1 / 3) for one in result.profiles)
    assert len(done) == 4
    assert target.open == 0
    assert result.settings["batches"] == (1, 5)


async def test_streams_are_closed_when_looking_fails() -> None:
    target = Target()
    running = answers(target)
    with contextlib.suppress(RuntimeError):
        async with running.running():
            await running.reach(2)
            raise RuntimeError
    assert target.open == 0
