"""Clients that leave: gateway, target and hub stop working for them at once."""

from __future__ import annotations

import asyncio
from typing import Any

from starsd.check.lab import Service
from tests.livestar import UNDER_WAY, LiveStar, eventually, questions, rounds, value

LONG = 1500
"""Tokens of answers that nobody will wait for."""


def ended(service: Service, outcome: str) -> float:
    return value(service, "starsd:requests_total", outcome=outcome)


def outcomes(star: LiveStar, outcome: str) -> tuple[float, float]:
    """Requests that ended so: at the gateway, and at both targets."""
    return ended(star["gateway"], outcome), sum(ended(one, outcome) for one in star.targets)


def test_f1_leaving_a_stream_frees_everything(star: LiveStar) -> None:
    fine, left, drafted = outcomes(star, "ok"), outcomes(star, "cancelled"), rounds(star)
    with star.client() as client:
        for question in questions(4, first=70, max_tokens=LONG):
            with client.chat.completions.create(**question.body, stream=True) as stream:
                for _, _chunk in zip(range(UNDER_WAY), stream, strict=False):
                    pass
    eventually(lambda: star.idle, "targets are free")
    eventually(lambda: value(star["hub"], "starsd:hub_slots_used") == 0, "the hub is free")
    assert outcomes(star, "cancelled") == (left[0] + 4, left[1] + 4)
    assert outcomes(star, "ok") == fine
    assert rounds(star) > drafted


def generated(star: LiveStar) -> float:
    return sum(value(one, "starsd:generation_tokens_total") for one in star.targets)


async def ask_and_leave(star: LiveStar, body: dict[str, Any]) -> None:
    before = generated(star)
    async with star.async_client() as client:
        asking = asyncio.create_task(client.chat.completions.create(**body))
        await asyncio.to_thread(eventually, lambda: generated(star) > before, "it is under way")
        asking.cancel()
        await asyncio.wait([asking])


def test_leaving_before_a_whole_answer_frees_everything(star: LiveStar) -> None:
    fine, left = outcomes(star, "ok"), outcomes(star, "cancelled")
    asyncio.run(ask_and_leave(star, questions(1, first=80, max_tokens=LONG)[0].body))
    eventually(lambda: star.idle, "targets are free")
    eventually(lambda: value(star["hub"], "starsd:hub_slots_used") == 0, "the hub is free")
    assert outcomes(star, "cancelled") == (left[0] + 1, left[1] + 1)
    assert outcomes(star, "ok") == fine
