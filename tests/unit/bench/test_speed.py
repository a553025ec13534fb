"""What is started how, who is asked when, and how answers are timed. No service runs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from services.target.stats import StarStats
from starsd.bench import speed
from starsd.bench.prompts import Prompt
from starsd.bench.speed import Setup, Stopwatch, calls, measure, read_counts, start
from starsd.bench.speed_result import Counts, Timed
from starsd.check.client import Question
from starsd.errors import ConfigError, DeadlineError, StarsdError
from starsd.protocol.events import Begin, Delta, Done, Event, Generate, Usage
from starsd.protocol.frames import FinishReason, Origin, RequestStats
from starsd.upstream import Upstream
from tests.unit.bench.answers import timed

SETUP = Setup(
    model="m",
    draft="layers:3",
    dtype="bfloat16",
    quantize="none",
    depth=3,
    nodes=0,
    wait_budget=7.5,
    invariant=True,
    others=False,
    prompts=2,
    max_tokens=5,
    temperature=0.5,
    repeats=2,
)


class FakeLab:
    """Remembers what was started, and what was waited for before the next start."""

    def __init__(self) -> None:
        self.services: dict[str, Any] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self.order: list[str] = []
        self.rounds = 0.0

    def start(self, name: str, kind: str, **settings: Any) -> Any:
        self.order.append(f"start {name}")
        self.settings[name] = {"kind": kind, **settings}
        self.services[name] = SimpleNamespace(
            url=name,
            name=name,
            wait_ready=lambda _: self.order.append(f"wait {name}"),
            metrics=lambda: f"starsd:spec_decode_num_drafts_total {self.rounds}\n",
        )
        return self.services[name]

    def wait_ready(self, _: float) -> None:
        self.order.append("wait all")

    def wait_hubs(self) -> None:
        self.order.append("wait hubs")


@pytest.fixture
def lab() -> Any:
    return FakeLab()


# -- services ------------------------------------------------------------------------------------


def test_each_variant_has_its_cores_and_star(lab: Any) -> None:
    assert list(start(lab, SETUP, (4, 7))) == ["plain", "colocated", "star"]
    placed = {
        name: (one["kind"], one["cores"], one.get("namespace"))
        for name, one in lab.settings.items()
    }
    assert placed == {
        "star-hub": ("draft", 7, "star"),
        "star": ("target", 4, "star"),
        "colocated-hub": ("draft", 4, "colocated"),
        "colocated": ("target", 4, "colocated"),
        "plain": ("target", 4, None),
    }


def test_plain_has_no_star_at_all(lab: Any) -> None:
    start(lab, SETUP, (0, 1))
    plain = lab.settings["plain"]
    assert (plain["drafting"], plain["redis_url"]) == (False, "")
    assert not {"draft_depth", "draft_nodes", "wait_budget"} & plain.keys()


def test_others_are_plain_in_our_other_precisions(lab: Any) -> None:
    setup = replace(SETUP, others=True, dtype="auto", quantize="int8")
    assert list(start(lab, setup, (4, 7)))[3:] == ["plain int4", "plain bf16"]
    own, mine = lab.settings["plain int4"], lab.settings["plain"]
    assert own == mine | {"quantize": "int4"}
    assert lab.settings["plain bf16"] == mine | {"quantize": "none", "dtype": "bfloat16"}
    assert calls(setup) == 5 * 2 * 2


def test_nodes_and_nothing_of_the_targets_own_to_propose(lab: Any) -> None:
    start(lab, replace(SETUP, nodes=11), (0, 1))
    for name in ("star", "colocated"):
        assert (lab.settings[name]["draft_nodes"], lab.settings[name]["ngram"]) == (11, 0)
    assert lab.settings["plain"]["ngram"] == 0


def test_weights_and_precision_are_the_same_everywhere(lab: Any) -> None:
    """model, dtype, quantize, invariant."""
    start(lab, replace(SETUP, quantize="int4"), (0, 1))
    names = ("model", "dtype", "quantize", "batch_invariant")
    engines = {tuple(one[name] for name in names) for one in lab.settings.values()}
    assert engines == {("m", "bfloat16", "int4", True)}


def test_draft_depth_and_wait_budget(lab: Any) -> None:
    start(lab, SETUP, (0, 1))
    for star in ("star", "colocated"):
        hub, target = lab.settings[f"{star}-hub"], lab.settings[star]
        assert (hub["draft"], hub["max_depth"]) == ("layers:3", 3)
        assert (target["draft_depth"], target["wait_budget"]) == (3, 7.5)


def test_targets_time_their_first_steps_in_quiet(lab: Any) -> None:
    start(lab, SETUP, (0, 1))
    after = lab.order.index("wait all") + 1
    assert lab.order[after:] == [
        *("start star", "wait star", "start colocated", "wait colocated"),
        *("wait hubs", "start plain", "wait plain"),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"draft": "none"},
        {"dtype": "bf16"},
        {"quantize": "int4"},  # with bfloat16
        {"depth": 65},
        {"nodes": 16},
        {"wait_budget": 1001.0},
    ],
)
def test_a_bad_setting_is_told_before_anything_starts(lab: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        measure(replace(SETUP, **bad), lab)
    assert lab.order == []


# -- questions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("invariant", "quantize", "strict"),
    [(False, "none", False), (True, "none", True), (False, "int8", True)],
)
def test_where_answers_must_be_identical(invariant: bool, quantize: str, strict: bool) -> None:
    setup = replace(SETUP, invariant=invariant, quantize=quantize)
    assert setup.batch_invariant is strict


def test_what_is_asked() -> None:
    """max_tokens and temperature; only the first turn."""
    question = SETUP.question(Prompt("a", "b", ("first", "second")), 9)
    assert question == Question("first", 9, 0.5, 5)


class Recorder:
    """Stands for Stopwatch: remembers who was asked what, and answers at once."""

    def __init__(self, lab: FakeLab, counted: bool = True) -> None:
        self.asked: list[tuple[str, Question]] = []
        self.closed = False
        self._lab = lab
        self._counted = counted

    def __call__(self, *_: object) -> Recorder:
        return self

    async def ask(self, url: str, question: Question) -> Timed:
        self.asked.append((url, question))
        rounds = 4 if url == "star" else 0
        self._lab.rounds += rounds * self._counted
        return timed("", stats=RequestStats(rounds=rounds, proposed=4 * rounds, accepted=rounds))

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "two_cores", lambda: (0, 1))


@pytest.mark.usefixtures("two_cores")
def test_prompts_and_repeats_are_interleaved_and_everyone_is_first_in_turn(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, ticks = Recorder(lab), []
    monkeypatch.setattr(speed, "Stopwatch", recorder)
    result, answers = measure(SETUP, lab, lambda: ticks.append(1))
    asked = recorder.asked[3:]  # after each has warmed up
    assert [url for url, _ in asked] == [
        *("plain", "colocated", "star"),
        *("colocated", "star", "plain"),
        *("star", "plain", "colocated"),
        *("plain", "colocated", "star"),
    ]
    questions = [question for _, question in asked]
    assert questions[:6] == questions[6:]
    assert len({one.prompt for one in questions[:6]}) == 2
    assert len(set(questions[:3])) == 1
    assert [one.variant for one in answers] == [url for url, _ in asked]
    assert [one.repeat for one in answers] == [0] * 6 + [1] * 6
    assert len(ticks) == len(answers) == calls(SETUP) == 12
    assert recorder.closed
    assert result.settings["prompts"] == 2
    assert (result.total, result.identical) == (4, 4)


@pytest.mark.usefixtures("two_cores")
def test_warming_up_is_not_counted(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "Stopwatch", Recorder(lab))
    result, _ = measure(SETUP, lab)
    assert lab.rounds == 20
    assert result.rounds == 16
    assert result.round_us["total"] == pytest.approx(1e6 * 4 * 2.0 / 16)


@pytest.mark.usefixtures("two_cores")
def test_counters_that_never_tell_of_all_rounds(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SETTLE_S", 0.2)
    monkeypatch.setattr(speed, "Stopwatch", Recorder(lab, counted=False))
    with pytest.raises(DeadlineError, match="star counts 0 of 4 rounds"):
        measure(SETUP, lab)


def test_zero_prompts_are_all() -> None:
    assert calls(replace(SETUP, prompts=0, repeats=1)) == 3 * 96


# -- counters ------------------------------------------------------------------------------------


def test_counters_are_read_as_the_target_exposes_them() -> None:
    stats = StarStats()
    assert read_counts(stats.exposition().decode()) == Counts()
    stats.round([1, 3, 1], 1, "hub")
    stats.round([1, 1], 2, "ngram")
    stats.round_trip(0.5, 100_000, 250_000)
    stats.verified(2, 0.25)
    assert read_counts(stats.exposition().decode()) == Counts(
        rounds=2,
        proposed={"0": 2, "1": 2, "2": 1},
        accepted={"0": 2, "1": 1},
        seconds={"queue": 0.1, "draft": 0.25, "network": 0.15, "verify": 0.5},
    )


# -- timing --------------------------------------------------------------------------------------


def answer_of(*counts: int, wait: Callable[[], object], end: bool = True) -> Any:
    """A target's stream: a delta of so many tokens after each wait."""

    async def generate(_: Upstream, url: str, request: Generate) -> AsyncGenerator[Event, None]:
        assert (url, request.model) == ("http://target", speed.NAME)
        yield Begin(prompt_ids=[1], seed=0, fingerprint="f")
        for count in counts:
            wait()
            yield Delta(ids=[7] * count, origins=[Origin.PLAIN] * count, text="x")
        if end:
            wait()
            usage = Usage(prompt_tokens=1, completion_tokens=sum(counts))
            yield Done(reason=FinishReason.STOP, usage=usage, stats=RequestStats())

    return generate


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr("starsd.bench.speed.time.perf_counter", lambda: now.s)
    return now


async def stopped(monkeypatch: pytest.MonkeyPatch, generate: Any) -> Timed:
    monkeypatch.setattr(Upstream, "generate", generate)
    upstream = Stopwatch(1.0, ssl.create_default_context())
    try:
        await upstream.ask("http://target", Question("p", 0, 0.0, 9))
        return await upstream.ask("http://target", Question("p", 0, 0.0, 9))
    finally:
        await upstream.close()


async def test_the_first_tokens_belong_to_ttft_and_the_end_to_nobody(
    now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait() -> None:
        now.s += 0.25

    one = await stopped(monkeypatch, answer_of(1, 5, 3, 0, wait=wait))
    assert one.ttft_s == 0.25
    assert (one.decoded, one.decode_s, one.tokens_per_s) == (8, 0.5, 16)
    assert one.answer.ids == [7] * 9


async def test_tokens_that_come_at_once_have_no_speed(
    now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await stopped(monkeypatch, answer_of(3, wait=lambda: None))
    assert (one.decoded, one.decode_s, one.tokens_per_s) == (0, 0.0, None)
    assert now.s == 100.0


async def test_a_stream_that_breaks_off_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StarsdError, match="terminal event"):
        await stopped(monkeypatch, answer_of(1, wait=lambda: None, end=False))
