"""What target and hub put down as what, in simulated time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import services.target.verifying
import starsd.drafters.lm
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings.target import TargetSettings
from tests.ministar import DRAFT_STEP_S, TARGET_STEP_S, MiniStar
from tests.scripted import EOS, HashModel

METRIC = "starsd:step_part_seconds_total"
SAMPLE_S, SEND_S = 0.25, 0.5


@pytest.fixture
def star() -> Iterator[MiniStar]:
    settings = TargetSettings(max_sequences=4, max_length=128)
    target, draft = (HashModel(settings).runner() for _ in range(2))
    with MiniStar([target], draft, target={"wait_budget": 100.0}) as star:
        yield star


def slowly(star: MiniStar, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        star.clock.now += seconds
        return function(*args, **kwargs)

    return slow


def serve(star: MiniStar, requests: int = 2) -> None:
    for number in range(requests):
        star.pods[0].submit(
            Submit(
                id=f"r{number}",
                prompt=[number, 2, 3],
                sampling=SamplingParams(seed=number, prompt_len=3),
                max_tokens=12,
                eos=(EOS,),
            )
        )
    star.serve()


def test_forwards_and_waiting_at_the_target(star: MiniStar) -> None:
    serve(star)
    pod = star.pods[0]
    forward = pod.metric(METRIC, part="forward")
    assert forward == pytest.approx(pod.runner.forwards * TARGET_STEP_S)
    waited = pod.metric("starsd:proposal_wait_seconds_total")
    assert waited > 0
    assert pod.metric(METRIC, part="wait") == pytest.approx(waited)
    assert pod.metric(METRIC, part="sampling") == pod.metric(METRIC, part="python") == 0


def test_forwards_at_the_hub(star: MiniStar) -> None:
    serve(star)
    seconds = star.hub_stats.parts.seconds()
    assert seconds["forward"] > 5 * DRAFT_STEP_S
    text = star.hub_stats.exposition().decode()
    assert f'{METRIC}{{part="forward"}} {seconds["forward"]}' in text
    (busy,) = re.findall(r"^starsd:hub_busy_seconds_total (.*)$", text, re.MULTILINE)
    assert seconds["forward"] == pytest.approx(float(busy))
    assert seconds["wait"] == 0


def test_sampling(star: MiniStar, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((services.target.verifying, "verify"), (starsd.drafters.lm, "rank_all")):
        monkeypatch.setattr(module, name, slowly(star, SAMPLE_S, getattr(module, name)))
    serve(star)
    for seconds in (star.pods[0].stats.parts.seconds(), star.hub_stats.parts.seconds()):
        assert seconds["sampling"] >= 4 * SAMPLE_S
        assert seconds["sampling"] % SAMPLE_S == pytest.approx(0, abs=1e-9)
        assert seconds["python"] == 0


@pytest.mark.parametrize("name", ["send_first", "send_hub", "receive", "flush"])
def test_the_targets_bus_is_transport(star: MiniStar, name: str) -> None:
    pod = star.pods[0]
    bus: Any = pod.bus
    setattr(bus, name, slowly(star, SEND_S, getattr(bus, name)))
    serve(star, 1)
    seconds = pod.stats.parts.seconds()
    assert seconds["transport"] >= SEND_S
    assert seconds["forward"] == pytest.approx(pod.runner.forwards * TARGET_STEP_S)
    assert seconds["python"] == 0


def test_the_channel_is_transport(star: MiniStar) -> None:
    pod = star.pods[0]
    channel: Any = pod.channel
    channel.send = slowly(star, SEND_S, channel.send)
    serve(star, 1)
    assert pod.stats.parts.seconds()["transport"] >= 2 * SEND_S


@pytest.mark.parametrize("name", ["receive", "reply", "done", "flush"])
def test_the_hubs_bus_is_transport(star: MiniStar, name: str) -> None:
    bus: Any = star.hub_bus
    setattr(bus, name, slowly(star, SEND_S, getattr(bus, name)))
    serve(star, 1)
    assert star.hub_stats.parts.seconds()["transport"] >= SEND_S
    assert star.hub_stats.parts.seconds()["python"] == 0


def test_the_rest_is_python(star: MiniStar) -> None:
    loop: Any = star.pods[0].loop
    loop._packer.plan = slowly(star, SEND_S, loop._packer.plan)
    hub: Any = star.real_hub
    hub._batch = slowly(star, SEND_S, hub._batch)
    serve(star, 1)
    assert star.pods[0].stats.parts.seconds()["python"] >= 2 * SEND_S
    assert star.hub_stats.parts.seconds()["python"] >= 2 * SEND_S
