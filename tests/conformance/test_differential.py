"""Random requests say the same with speculation and without, through gateway and real Redis."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.answers import Answer, answer_of
from tests.conformance.requests import A_CALL, Request, calls, requests, stops
from tests.livestar import DEADLINE_S, MODEL, LiveStar
from tests.tiny import LAYERS_DRAFT, make_tiny_model

COUNT = int(os.environ.get("DIFFERENTIAL_REQUESTS", "60"))
CONTEXT = 1536
AT_ONCE = 5
"""Requests that share a batch with each other, once as speculated and once as plain ones."""


@pytest.fixture(scope="module")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a context that tools fit into, and tokens that calls consist of."""
    folder = make_tiny_model(tmp_path_factory.mktemp("roomy"), corpus=[A_CALL] * 3)
    config = folder / "config.json"
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "max_position_embeddings": CONTEXT})
    )
    return folder


@pytest.fixture(scope="module")
def star(roomy_model: Path) -> Iterator[LiveStar]:
    """Two targets that wait for every proposal, since their steps are over before a hub's."""
    model: dict[str, Any] = {
        "scripted": "",
        "model": str(roomy_model),
        "dtype": "float32",
        "max_length": CONTEXT,
        "max_sequences": 8,
        "batch_invariant": True,
    }
    target = {**model, "wait_budget": 1000, "depth_control": "fixed"}
    hub = {**model, "draft": LAYERS_DRAFT, "trees": "on"}
    with LiveStar(step_s=0.0, target=target, hub=hub) as star:
        star.start("a", "b", "hub", "gateway")
        star.lab.wait_ready()
        star.lab.wait_hubs()
        yield star


@pytest.mark.timeout(120 + COUNT)
def test_random_requests_say_the_same_with_speculation_and_without(star: LiveStar) -> None:
    accepted: list[int] = []
    called: list[tuple[str, str]] = []

    @settings(
        max_examples=COUNT // AT_ONCE,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to shrink would ask for minutes
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(
        st.tuples(calls(), stops(), *[requests()] * (AT_ONCE - 2)),
        st.sampled_from(("auto", 2)),
    )
    def say_the_same(asked: tuple[Request, ...], speculation: str | int) -> None:
        fast = asyncio.run(answers(star, asked, speculation))
        plain = asyncio.run(answers(star, asked, "off"))
        for one, other in zip(fast, plain, strict=True):
            same(one, other)
            assert other.starsd["rounds"] == 0
            accepted.append(one.starsd["accepted"])
            called.extend(call for choice in one.choices for call in choice.calls)

    say_the_same()
    assert called, "no tool was called"
    assert sum(accepted) > len(accepted), "hardly anything was speculated"


async def answers(star: LiveStar, asked: Sequence[Request], speculation: str | int) -> list[Answer]:
    """All at once."""
    url = star["gateway"].url
    async with httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, trust_env=False) as client:

        async def answer(request: Request) -> Answer:
            body = {"model": MODEL, **request.spoken(speculation)}
            response = await client.post(request.path, json=body)
            return answer_of(response, stream="stream" in body)

        return list(await asyncio.gather(*map(answer, asked)))


def same(one: Answer, other: Answer) -> None:
    """All but the statistics; log probabilities within 1e-4."""
    logprobs = [[choice.logprobs for choice in answer.choices] for answer in (one, other)]
    for choice in (*one.choices, *other.choices):
        choice.logprobs = []
    assert one == other
    for ours, theirs in zip(*logprobs, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
