"""The front between HTTP bodies and frames, with the loop's end in the test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from services.target.front import TargetFront
from services.target.stats import StarStats
from starsd.errors import (
    ConfigError,
    ContextLengthError,
    OverloadedError,
    RequestError,
    StarsdError,
    UnavailableError,
)
from starsd.process.handle import FRESH_S
from starsd.protocol.events import Begin, Generate
from starsd.protocol.frames import (
    Emitted,
    Finished,
    FinishReason,
    Hubs,
    Origin,
    RequestStats,
    Submit,
)
from starsd.protocol.pods import PodState, TargetPod
from starsd.protocol.sampling import SamplingParams
from starsd.settings import TargetSettings
from tests.unit.process.fakeloop import HUB, STARTED, FakeLoop, MemoryRegistry, eventually
from tests.unit.target.bytetext import EOS, ByteTokenizer

GIVEN: dict[str, Any] = {
    "id": "t",
    "boot": "b",
    "model": "some/folder/m",
    "max_waiting": 1,
    "heartbeat_s": 0.005,
}
SETTINGS = TargetSettings(**GIVEN)


def make(fake: FakeLoop, registry: MemoryRegistry | None = None, **changes: Any) -> TargetFront:
    settings = SETTINGS.model_copy(update=changes)
    return TargetFront(settings, fake.process, registry, lambda _: ByteTokenizer())


@asynccontextmanager
async def running(front: TargetFront) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(front.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await front.drain(0.0)
        await front.stop()


@asynccontextmanager
async def serving(**changes: Any) -> AsyncIterator[tuple[TargetFront, FakeLoop]]:
    fake = FakeLoop()
    front = make(fake, **changes)
    async with running(front):
        fake.start()
        await eventually(lambda: front.readiness().ready)
        yield front, fake


def body(content: str = "hi", **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "id": "client's",
        "model": "m",
        "messages": [{"role": "user", "content": content}],
        "sampling": SamplingParams(seed=7, temperature=0.5),
    }
    return msgspec.json.encode(Generate(**{**fields, **changes}))


async def test_a_request_reaches_the_loop_in_tokens() -> None:
    async with serving() as (front, fake):
        answer = await front.generate(body())
        submit = await fake.next()
        assert submit == Submit(
            id=answer.id,
            prompt=list(b"hi"),
            sampling=SamplingParams(seed=7, temperature=0.5, prompt_len=2),
            max_tokens=62,
            eos=(EOS,),
        )
        assert answer.id != "client's"
        begin = await answer.events.get()
        assert begin == Begin(prompt_ids=list(b"hi"), seed=7, fingerprint="fp")


async def test_max_tokens_is_passed_on() -> None:
    async with serving() as (front, fake):
        await front.generate(body(max_tokens=5))
        submit = await fake.next()
        assert isinstance(submit, Submit)
        assert submit.max_tokens == 5


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"{", RequestError),
        (body(stop=("",)), RequestError),
        (body("refuse"), RequestError),
        (body("x" * 64), ContextLengthError),
        (body("x" * 60, max_tokens=5), ContextLengthError),
    ],
)
async def test_what_is_refused_takes_no_place(sent: bytes, error: type[StarsdError]) -> None:
    async with serving() as (front, fake):
        for _ in range(5):
            with pytest.raises(error):
                await front.generate(sent)
        assert front.requests.running == 0
        assert b'starsd:requests_total{outcome="rejected"} 5.0' in front.exposition()
        await front.generate(body())
        assert isinstance(await fake.next(), Submit)  # and nothing came before it


async def test_admission_is_bounded() -> None:
    async with serving() as (front, _):
        for _ in range(3):
            await front.generate(body())
        with pytest.raises(OverloadedError):
            await front.generate(body())
        info = front.info()
        assert (info.running, info.waiting, info.capacity) == (2, 1, 2)


async def test_serves_only_while_the_loop_moves() -> None:
    fake = FakeLoop()
    front = make(fake)
    async with running(front):
        with pytest.raises(UnavailableError):
            front.info()
        fake.start()
        await eventually(lambda: front.readiness().ready)
        assert front.info() == TargetPod(
            id="t",
            boot="b",
            state=PodState.READY,
            url="http://127.0.0.1:8001",
            model="m",
            max_length=64,
            capacity=2,
        )
        front.loop._clock = lambda: front.loop._moved_at + FRESH_S
        with pytest.raises(UnavailableError):
            await front.generate(body())


async def test_draining_takes_nothing_new() -> None:
    async with serving() as (front, fake):
        answer = await front.generate(body())
        drain = asyncio.create_task(front.drain(60.0))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError):
            await front.generate(body())
        assert not front.readiness().ready
        await fake.next()
        fake.send(Finished(id=answer.id, reason=FinishReason.STOP, stats=RequestStats()))
        await drain


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({"host": "::1"}, "http://[::1]:8001"),
        ({"host": "10.0.0.1"}, "http://10.0.0.1:8001"),
        ({"advertise_url": "http://elsewhere"}, "http://elsewhere"),
    ],
)
async def test_where_the_gateway_reaches_it(changes: dict[str, Any], url: str) -> None:
    fake = FakeLoop()
    front = make(fake, **changes)
    assert front.url == url
    await front.stop()


async def test_a_wildcard_is_no_address_to_reach() -> None:
    fake = FakeLoop()
    front = make(fake, host="0.0.0.0")
    assert "0.0.0.0" not in front.url
    await front.stop()


async def test_the_name_in_the_api() -> None:
    fake = FakeLoop()
    front = make(fake, served_model_name="name")
    assert front.model == "name"
    await front.stop()


async def test_heartbeat_tells_the_loop_of_hubs_and_the_star_of_the_target() -> None:
    fake, registry = FakeLoop(), MemoryRegistry()
    front = make(fake, registry)
    registry.published["hub"] = HUB
    async with running(front):
        fake.start()
        assert await fake.next() == Hubs(hubs=[HUB])
        await eventually(lambda: "t" in registry.published)
        assert await fake.next() == Hubs(hubs=[HUB])  # the target itself is no hub
        registry.down = True
        await eventually(lambda: front.readiness().degraded)
        assert front.readiness().ready
        await front.generate(body())  # served alone
        registry.down = False
        await eventually(lambda: not front.readiness().degraded)
    assert "t" not in registry.published


async def test_a_tokenizer_that_cannot_be_loaded_ends_the_run() -> None:
    def fail(_: TargetSettings) -> ByteTokenizer:
        raise ConfigError("no tokenizer.json")

    fake = FakeLoop()
    front = TargetFront(SETTINGS, fake.process, None, fail)
    async with running(front) as task:
        fake.send(STARTED)
        with pytest.raises(ConfigError):
            await task


async def test_frames_become_events() -> None:
    async with serving() as (front, fake):
        answer = await front.generate(body(stop=("c",)))
        fake.send(Emitted(id=answer.id, tokens=list(b"abc"), origins=[Origin.PLAIN] * 3))
        await eventually(lambda: answer.events.qsize() == 2)
        await answer.events.get()
        delta = await answer.events.get()
        assert msgspec.to_builtins(delta)["text"] == "ab"


async def test_no_metric_is_told_twice() -> None:
    def families(text: bytes) -> set[bytes]:
        return {line.split()[2] for line in text.splitlines() if line.startswith(b"# TYPE")}

    async with serving() as (front, _):
        shared = families(front.exposition()) & families(StarStats().exposition())
    assert shared == set()
