"""A scripted target: an ASGI app that speaks ``starsd.protocol.events`` as a test tells it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from starlette.types import Receive, Scope, Send

from starsd.errors import ErrorBody
from starsd.protocol.events import (
    GENERATE_PATH,
    INFO_PATH,
    Begin,
    Delta,
    Done,
    Event,
    Generate,
    Likelihood,
    TokenLogprobs,
    Usage,
)
from starsd.protocol.frames import FinishReason, Origin, RequestStats
from starsd.protocol.pods import PodState, TargetPod
from starsd.service import serving

STATS = RequestStats(rounds=3, proposed=9, accepted=7, fallbacks=1)
HANG = "hang"
BREAK = "break"
Step = Event | bytes | float | str
"""An event, raw bytes, seconds to sleep, HANG (until the client leaves) or BREAK (cut off)."""


def begin(seed: int = 5) -> Begin:
    return Begin(model="tiny", prompt_ids=[1, 2, 3], seed=seed, fingerprint="fp-1")


def delta(
    text: str, count: int = 1, choice: int = 0, logprobs: list[TokenLogprobs] | None = None
) -> Delta:
    origins = [Origin.PLAIN] * count
    lengths = [*[0] * (count - 1), len(text)]
    return Delta(
        choice=choice,
        ids=[7] * count,
        origins=origins,
        text=text,
        lengths=lengths,
        logprobs=logprobs,
    )


def logprobs(token: bytes) -> TokenLogprobs:
    return TokenLogprobs(Likelihood(token, -0.5), [Likelihood(b"top", -0.25)])


def done(
    reason: FinishReason = FinishReason.STOP, text: str = "", tokens: int = 2, choice: int = 0
) -> Done:
    usage = Usage(prompt_tokens=3, completion_tokens=tokens)
    return Done(choice=choice, text=text, reason=reason, usage=usage, stats=STATS)


def hello_world() -> list[Step]:
    return [begin(), delta("Hello"), delta(" world"), done()]


@dataclass
class FakeTarget:
    """Answers each request with ``script(request)``, or with ``refusal`` if that is set."""

    name: str = "t0"
    model: str = "tiny"
    script: Callable[[Generate], Sequence[Step]] = lambda _request: hello_world()
    refusal: ErrorBody | None = None
    state: PodState = PodState.READY
    running: int = 0
    capacity: int = 4
    mute: bool = False
    """Leaves probes unanswered."""
    url: str = ""
    seen: list[Generate] = field(default_factory=list)
    open: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client left before its stream ended."""

    @property
    def pod(self) -> TargetPod:
        return TargetPod(
            id=self.name,
            boot="b",
            state=self.state,
            url=self.url,
            model=self.model,
            max_length=512,
            running=self.running,
            capacity=self.capacity,
        )

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[FakeTarget]:
        async with serving(self, "127.0.0.1", port, what=self.name, drain_s=1) as actual:
            self.url = f"http://127.0.0.1:{actual}"
            yield self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == INFO_PATH:
            if self.mute:
                await _gone(receive)
                return
            await _respond(send, 200, msgspec.json.encode(self.pod))
        elif scope["path"] == GENERATE_PATH:
            await self._generate(receive, send)
        else:
            raise AssertionError(scope["path"])

    async def _generate(self, receive: Receive, send: Send) -> None:
        request = msgspec.json.decode(await _body(receive), type=Generate)
        self.seen.append(request)
        if self.refusal is not None:
            error = self.refusal
            await _respond(send, error.status, msgspec.json.encode(error.as_json()), retry=3)
            return
        self.open += 1
        playing = asyncio.create_task(self._play(request, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({playing, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                self.left.set()
        finally:
            self.open -= 1
            playing.cancel()
            gone.cancel()
            await asyncio.wait({playing, gone})

    async def _play(self, request: Generate, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for step in self.script(request):
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif step == HANG:
                await asyncio.Event().wait()
            elif step == BREAK:
                return
            else:
                line = step if isinstance(step, bytes) else msgspec.json.encode(step) + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _respond(send: Send, status: int, body: bytes, retry: int = 0) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    if retry:
        headers.append((b"retry-after", str(retry).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
