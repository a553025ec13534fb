"""Asks a target directly, by the protocol of the gateway, because checks compare token ids."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from starsd.errors import RemoteError, TransportError
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Generate
from starsd.protocol.frames import FinishReason, Origin, RequestStats
from starsd.protocol.sampling import SamplingParams
from starsd.upstream import Upstream

CONNECT_S = 5.0


@dataclass(frozen=True)
class Question:
    """One request, the same for every server it is put to."""

    prompt: str
    seed: int
    temperature: float
    max_tokens: int

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(seed=self.seed, temperature=self.temperature)


@dataclass
class Answer:
    """What a target said. ``ids`` are the sampled tokens, end of sequence included."""

    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    text: str = ""
    reason: FinishReason | None = None
    stats: RequestStats = field(default_factory=RequestStats)

    @property
    def outcome(self) -> tuple[list[int], str, FinishReason | None]:
        """What must be the same whoever drafted."""
        return self.ids, self.text, self.reason


async def ask(upstream: Upstream, url: str, model: str, question: Question) -> Answer:
    """Raises what ``Upstream.generate`` does; RemoteError too for an error within the stream."""
    request = Generate(
        id=f"check-{question.seed}",
        model=model,
        messages=[{"role": "user", "content": question.prompt}],
        sampling=question.sampling,
        max_tokens=question.max_tokens,
    )
    answer = Answer()
    async with contextlib.aclosing(upstream.generate(url, request)) as events:
        async for event in events:
            _note(answer, event)
    if answer.reason is None:
        raise TransportError(f"{url}: the stream ended without a terminal event")
    return answer


def _note(answer: Answer, event: Event) -> None:
    match event:
        case Begin():
            answer.prompt_ids = event.prompt_ids
        case Delta():
            answer.ids += event.ids
            answer.origins += event.origins
            answer.text += event.text
        case Done():
            answer.text += event.text
            answer.reason, answer.stats = event.reason, event.stats
        case Error():
            raise RemoteError(event.error)


async def ask_all(
    urls: Sequence[str], model: str, questions: Sequence[Question], concurrency: int
) -> list[Answer]:
    """All questions, spread over the targets in turn, so many at a time; answers in order."""
    gate = asyncio.Semaphore(concurrency)

    async def one(url: str, question: Question) -> Answer:
        async with gate:
            return await ask(upstream, url, model, question)

    upstream = Upstream(CONNECT_S, ssl.create_default_context())
    try:
        asked = zip(itertools.cycle(urls), questions, strict=False)
        return await asyncio.gather(*(one(url, question) for url, question in asked))
    finally:
        await upstream.close()
