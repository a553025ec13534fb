"""Putting the same prompts to a server over HTTP, so many at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from starsd.bench.peers.server import Server
from starsd.bench.prompts import Prompt
from starsd.errors import UnavailableError

REQUEST_TIMEOUT_S = 600.0
WARM_TOKENS = 16


@dataclass(frozen=True)
class Reply:
    """``tokens`` are those the server says it generated."""

    prompt: str
    prompt_tokens: int
    tokens: int
    seconds: float
    text: str


@dataclass(frozen=True)
class Run:
    """All prompts once. ``wall_s`` runs from the first request to the last answer."""

    server: str
    concurrency: int
    wall_s: float
    load: float
    replies: tuple[Reply, ...]

    @property
    def tokens_per_s(self) -> float:
        return sum(reply.tokens for reply in self.replies) / self.wall_s


def measure(
    server: Server, prompts: Sequence[Prompt], concurrency: int, max_tokens: int, load: float
) -> Run:
    """``load`` is the load average before it. Raises UnavailableError."""
    return asyncio.run(_measure(server, prompts, concurrency, max_tokens, load))


def warm(server: Server, prompts: Sequence[Prompt], concurrency: int) -> None:
    """As many requests as later at once: what is compiled or allocated late is so before."""
    measure(server, prompts[:concurrency], concurrency, WARM_TOKENS, load=0.0)


async def _measure(
    server: Server, prompts: Sequence[Prompt], concurrency: int, max_tokens: int, load: float
) -> Run:
    gate = asyncio.Semaphore(concurrency)

    async def one(prompt: Prompt) -> Reply:
        async with gate:
            return await _ask(client, server, prompt, max_tokens)

    async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S, trust_env=False) as client:
        begun = time.perf_counter()
        replies = await asyncio.gather(*map(one, prompts))
        wall_s = time.perf_counter() - begun
    return Run(server.name, concurrency, wall_s, load, tuple(replies))


async def _ask(client: httpx.AsyncClient, server: Server, prompt: Prompt, max_tokens: int) -> Reply:
    messages = [{"role": "user", "content": prompt.turns[0]}]
    limits = {"max_tokens": max_tokens, "temperature": 0.0}
    body = {"model": server.model, "messages": messages, **limits}
    begun = time.perf_counter()
    try:
        response = await client.post(f"{server.url}/v1/chat/completions", json=body)
    except httpx.HTTPError as error:
        raise UnavailableError(f"{server.name}: {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - begun
    if not response.is_success:
        raise UnavailableError(f"{server.name}: {response.status_code} {response.text[:500]}")
    try:
        return _reply(prompt.id, seconds, response.json())
    except (LookupError, TypeError, ValueError) as error:
        shown = response.text[:500]
        raise UnavailableError(f"{server.name}: no chat completion with usage: {shown}") from error


def _reply(prompt: str, seconds: float, answer: dict[str, Any]) -> Reply:
    usage = answer["usage"]
    return Reply(
        prompt=prompt,
        prompt_tokens=usage["prompt_tokens"],
        tokens=usage["completion_tokens"],
        seconds=seconds,
        text=answer["choices"][0]["message"]["content"],
    )
