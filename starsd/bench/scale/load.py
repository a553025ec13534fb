"""Answers asked for without end of some targets at once, and when their tokens came."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from starsd.bench.scale.star import NAME
from starsd.bench.scale.world import Text, World
from starsd.check.client import CONNECT_S
from starsd.errors import RemoteError
from starsd.protocol.events import Delta, Error, Generate
from starsd.protocol.sampling import SamplingParams
from starsd.upstream import Upstream

STRIDE = 5
"""Streams begin with texts so far apart, so that not all answers end together."""


class Came(NamedTuple):
    """A round: when it came, of how many tokens, and after how many of which text."""

    at: float
    tokens: int
    place: int = 0
    text: int = 0

    @property
    def goes_on(self) -> bool:
        """An answer begun earlier."""
        return self.place > 0


class Span(NamedTuple):
    """Tokens of a text."""

    text: int
    start: int
    end: int


@dataclass
class Stream:
    """One of a target's sequences, answer after answer from ``first`` on."""

    target: int
    url: str
    world: World
    first: int
    came: list[Came] = field(default_factory=list)
    mismatched: int = 0

    async def run(self, upstream: Upstream) -> None:
        """Until it is cancelled. Raises what ``Upstream.generate`` does, RemoteError too."""
        number = self.first
        while True:
            await self._ask(upstream, number % len(self.world.texts))
            number += 1

    async def _ask(self, upstream: Upstream, number: int) -> None:
        text = self.world.texts[number]
        place = 0
        request = question(self, number, text)
        async with contextlib.aclosing(upstream.generate(self.url, request)) as events:
            async for event in events:
                if isinstance(event, Error):
                    raise RemoteError(event.error)
                if isinstance(event, Delta) and event.ids:
                    self.came.append(Came(time.perf_counter(), len(event.ids), place, number))
                    expected = text.answer[place : place + len(event.ids)]
                    self.mismatched += tuple(event.ids) != expected
                    place += len(event.ids)

    def tokens(self, since: float, until: float) -> int:
        return sum(one.tokens for one in self.came if since <= one.at < until)

    def rounds(self, since: float, until: float) -> list[Span]:
        """Of each that went on an answer what it gave."""
        return [
            Span(one.text, one.place, one.place + one.tokens)
            for one in self.came
            if one.goes_on and since <= one.at < until
        ]

    def gaps(self, since: float, until: float) -> list[float]:
        """Between a round's tokens and those of the round before, of one answer."""
        return self._between(since, until, going_on=True)

    def pauses(self, since: float, until: float) -> list[float]:
        """From the last tokens of an answer to the first of the next."""
        return self._between(since, until, going_on=False)

    def _between(self, since: float, until: float, *, going_on: bool) -> list[float]:
        pairs = zip(self.came, self.came[1:], strict=False)
        return [
            one.at - before.at
            for before, one in pairs
            if one.goes_on is going_on and since <= before.at and one.at < until
        ]


def question(stream: Stream, number: int, text: Text) -> Generate:
    return Generate(
        id=f"{stream.target}-{stream.first}-{number}",
        model=NAME,
        messages=[{"role": "user", "content": str(number)}],
        sampling=SamplingParams(seed=number, temperature=0.0),
        max_tokens=len(text.answer),
    )


def streams(urls: Sequence[str], worlds: Sequence[World], sequences: Sequence[int]) -> list[Stream]:
    """So many at each target."""
    of_whom = [target for target, count in enumerate(sequences) for _ in range(count)]
    return [
        Stream(target, urls[target], worlds[target], STRIDE * number)
        for number, target in enumerate(of_whom)
    ]


@contextlib.asynccontextmanager
async def running(asked: Sequence[Stream]) -> AsyncIterator[None]:
    """All of them. Raises what made one of them fail."""
    upstream = Upstream(CONNECT_S, ssl.create_default_context())
    tasks = [asyncio.create_task(stream.run(upstream)) for stream in asked]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await upstream.close()
