"""Gateway and measurement (rows G of the cases)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from starsd.check.client import Question, ask_all
from tests.cases.star import HASH, Cases, chat_body


def test_g5_the_gateway_passes_what_a_target_passes(cases: Cases) -> None:
    """As many at once as the target takes: all succeed on both ways, with the same text."""
    count = 48
    questions = [Question(f"load {place}", place, 0.8, 16) for place in range(count)]
    url = cases.lab.services[HASH].url
    direct = asyncio.run(ask_all([url], HASH, questions, count))
    through = asyncio.run(_through(cases, questions))
    assert [answer.text for answer in direct] == through


async def _through(cases: Cases, questions: list[Question]) -> list[str]:
    async def one(question: Question) -> str:
        fields: dict[str, Any] = {
            "temperature": question.temperature,
            "seed": question.seed,
            "max_tokens": 16,
        }
        response = await client.post(
            "/v1/chat/completions", json=chat_body(question.prompt, HASH, **fields)
        )
        text: str = response.raise_for_status().json()["choices"][0]["message"]["content"]
        return text

    async with httpx.AsyncClient(base_url=cases.gateway.url, timeout=60, trust_env=False) as client:
        return await asyncio.gather(*map(one, questions))
