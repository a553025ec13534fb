"""A thousand short requests, some of them left midway, leave nothing behind anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import openai
import psutil
import pytest
import redis

from starsd.check.lab import Service
from tests.livestar import (
    SCRIPTED_TARGET,
    Heard,
    LiveStar,
    Question,
    eventually,
    questions,
    texts,
    value,
)

CONCURRENCY = 16
WARM, ALL = 200, 1000
ASKED = [Question(one.prompt, one.seed, one.temperature, 12) for one in questions(10)]
LONG = 300
"""Tokens of the answers that nobody waits for."""
MEMORY_SLACK = 24 * 1024 * 1024
THREAD_SLACK = 2
DESCRIPTOR_SLACK = CONCURRENCY
"""The gateway keeps idle connections to a target, as many as it ever needed at once."""


@pytest.fixture(scope="module")
def star() -> Iterator[LiveStar]:
    target = {**SCRIPTED_TARGET, "wait_budget": 4, "max_sequences": 4}
    with LiveStar(step_s=0.002, target=target) as star:
        star.start_all()
        star.wait_whole()
        yield star


class Size(NamedTuple):
    """Of a service, its step loop included."""

    memory: int
    descriptors: int
    threads: int


def size(service: Service) -> Size:
    assert service.process is not None
    front = psutil.Process(service.process.pid)
    family = [front, *front.children(recursive=True)]
    return Size(
        sum(one.memory_info().rss for one in family),
        sum(one.num_fds() for one in family),
        sum(one.num_threads() for one in family),
    )


def watched(star: LiveStar) -> dict[str, Service]:
    return {name: star[name] for name in ("gateway", "a", "b", "hub")}


class Stream(NamedTuple):
    length: int
    pending: int


def contents(star: LiveStar) -> dict[str, Stream | None]:
    """Every key in Redis; of streams, the entries in it and those not acknowledged."""
    with redis.Redis.from_url(star.redis.url, decode_responses=True) as client:
        found: dict[str, Stream | None] = {}
        for key in sorted(client.scan_iter()):
            found[key] = None
            if client.type(key) == "stream":
                groups = client.xinfo_groups(key)
                pending = sum(group["pending"] + (group["lag"] or 0) for group in groups)
                found[key] = Stream(client.xlen(key), pending)
        return found


def settled(star: LiveStar) -> bool:
    """Nobody runs, no slot is used, no stream holds an entry."""
    streams = [stream for stream in contents(star).values() if stream is not None]
    free = value(star["hub"], "starsd:hub_slots_used") == 0
    served = value(star["gateway"], "starsd:num_requests_running") == 0
    return star.idle and free and served and all(stream == (0, 0) for stream in streams)


async def ask(client: openai.AsyncOpenAI, number: int) -> Heard | None:
    """One request; of every ten, four are streamed, two left midway and one left unanswered."""
    question = ASKED[number % len(ASKED)]
    kind, heard = number // len(ASKED) % 10, Heard()
    create = client.chat.completions.create
    if kind < 3:
        answer = await create(**question.body)
        heard.text, heard.reason = answer.choices[0].message.content or "", "length"
        return heard
    if kind == 9:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.03):
                await create(**question.body | {"max_tokens": LONG})
        return None
    leaving = kind in (4, 7)
    body = question.body | ({"max_tokens": LONG} if leaving else {})
    async with await create(**body, stream=True) as stream:
        async for chunk in stream:
            heard.note(chunk)
            if leaving and heard.chunks > 2:
                return None
    return heard


async def ask_many(star: LiveStar, first: int, end: int) -> list[tuple[Question, Heard]]:
    """Those that were answered to the end."""
    numbers, kept = iter(range(first, end)), []

    async def worker(client: openai.AsyncOpenAI) -> None:
        for number in numbers:
            if (heard := await ask(client, number)) is not None:
                kept.append((ASKED[number % len(ASKED)], heard))

    async with star.async_client() as client:
        await asyncio.gather(*(worker(client) for _ in range(CONCURRENCY)))
    return kept


def test_f4_a_thousand_requests_leave_nothing(star: LiveStar) -> None:
    eventually(lambda: settled(star), "the star is at rest before")
    keys = set(contents(star))
    truth = dict(zip(ASKED, texts(star.plain(ASKED)), strict=True))
    heard = asyncio.run(ask_many(star, 0, WARM))
    eventually(lambda: settled(star), "the star is at rest after some")
    warm = {name: size(service) for name, service in watched(star).items()}
    heard += asyncio.run(ask_many(star, WARM, ALL))
    eventually(lambda: settled(star), "the star is at rest after all")

    assert len(heard) == ALL * 7 // 10
    assert all(texts([got]) == [truth[question]] for question, got in heard)
    assert set(contents(star)) == keys
    assert "{starsd}:dead" not in keys
    assert value(star["hub"], "starsd:hub_entries_bad_total") == 0
    for name, service in watched(star).items():
        before, after = warm[name], size(service)
        assert after.memory < before.memory + MEMORY_SLACK, name
        assert after.descriptors <= before.descriptors + DESCRIPTOR_SLACK, name
        assert after.threads <= before.threads + THREAD_SLACK, name
    no_tracebacks(star)
    stop_cleanly(star)


def no_tracebacks(star: LiveStar) -> None:
    assert all("Traceback" not in one.last_lines(10_000) for one in star.lab.services.values())


def stop_cleanly(star: LiveStar) -> None:
    """All but Q_in, which is no single hub's and expires, goes with its owner."""
    q_in = {key for key in contents(star) if key.startswith("{starsd}:q:") and "hub" not in key}
    assert len(q_in) == 1
    for service in watched(star).values():
        assert service.stop() == 0, service.last_lines()
    left = set(contents(star))
    assert left <= q_in | {"{starsd}:pods"}
    with redis.Redis.from_url(star.redis.url) as client:
        assert all(client.pttl(key) > 0 for key in left)
        assert not client.zcard("{starsd}:pods")
