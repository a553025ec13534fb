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
    UnknownModelError,
)
from starsd.process.handle import FRESH_S
from starsd.protocol.events import Begin, Generate
from starsd.protocol.frames import (
    Admitted,
    Emitted,
    Finished,
    FinishReason,
    Hubs,
    Origin,
    RequestStats,
    Submit,
)
from starsd.protocol.pods import PodState, TargetPod
from starsd.protocol.sampling import SamplingParams, choice_seed
from starsd.protocol.tokenizing import Detokenize, Tokenize, Tokens
from starsd.settings.target import TargetSettings
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
        assert begin == Begin(model="m", prompt_ids=list(b"hi"), seed=7, fingerprint="fp")


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
        answers = [await front.generate(body()) for _ in range(3)]
        with pytest.raises(OverloadedError):
            await front.generate(body())
        for answer in answers[:2]:
            front.requests.handle(Admitted(id=answer.id))
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
        with pytest.raises(UnavailableError, match="no word of its loop for 5 s"):
            await front.generate(body())


async def test_draining_takes_nothing_new() -> None:
    async with serving() as (front, fake):
        answer = await front.generate(body())
        drain = asyncio.create_task(front.drain(60.0))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="draining"):
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


# -- several names, choices, prompts -------------------------------------------------------------


async def next_submit(fake: FakeLoop) -> Submit:
    submit = await fake.next()
    assert isinstance(submit, Submit)
    return submit


async def test_served_model_aliases() -> None:
    async with serving(served_model_aliases=("gpt", "best")) as (front, fake):
        for name in ("m", "gpt", "best"):
            answer = await front.generate(body(model=name))
            begin = await answer.events.get()
            assert isinstance(begin, Begin)
            assert begin.model == "m"
            fake.send(Finished(id=answer.id, reason=FinishReason.LENGTH, stats=RequestStats()))
            await eventually(lambda: not front.requests.waiting)
        with pytest.raises(UnknownModelError, match="m, gpt, best"):
            await front.generate(body(model="other"))
        assert front.info().aliases == ("gpt", "best")


async def test_choices_are_requests_of_the_loop_with_seeds_of_their_own() -> None:
    async with serving() as (front, fake):
        answer = await front.generate(body(n=3))
        submits = [await next_submit(fake) for _ in range(3)]
        assert [submit.id for submit in submits] == [choice.id for choice in answer.choices]
        seeds = [submit.sampling.seed for submit in submits]
        assert seeds == [7, choice_seed(7, 1), choice_seed(7, 2)]
        assert len({tuple(submit.prompt) for submit in submits}) == 1


async def test_a_prompt_of_text_or_ids_is_continued_as_it_is() -> None:
    async with serving() as (front, fake):
        for prompt, ids in (("text", list(b"text")), ([3, 1, 2], [3, 1, 2])):
            answer = await front.generate(body(messages=[], prompt=prompt))
            assert (await next_submit(fake)).prompt == ids
            fake.send(Finished(id=answer.id, reason=FinishReason.LENGTH, stats=RequestStats()))
            await eventually(lambda: not front.requests.waiting)


async def test_ends_and_depth_and_logprobs_reach_the_loop() -> None:
    async with serving() as (front, fake):
        asked: dict[str, Any] = {"stop_token_ids": (5,), "logprobs": 2, "draft_depth": 0}
        answer = await front.generate(body(**asked))
        submit = await next_submit(fake)
        assert (submit.eos, submit.logprobs, submit.draft_depth) == ((EOS, 5), 2, 0)
        fake.send(Finished(id=answer.id, reason=FinishReason.LENGTH, stats=RequestStats()))
        await eventually(lambda: not front.requests.waiting)
        await front.generate(body(ignore_eos=True))
        assert (await next_submit(fake)).eos == ()


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": "x"}, "prompt"),
        ({"messages": [], "prompt": ""}, "prompt"),
        ({"messages": [], "prompt": []}, "prompt"),
        ({"messages": [], "prompt": [512]}, "prompt"),
        ({"messages": [], "prompt": "x" * 64}, "prompt"),
        ({"stop_token_ids": (512,)}, "stop_token_ids"),
        ({"messages": []}, "messages"),
        ({"n": 100}, "n"),
    ],
)
async def test_what_cannot_be_begun_is_refused(changes: dict[str, Any], param: str) -> None:
    async with serving() as (front, _):
        with pytest.raises(RequestError) as caught:
            await front.generate(body(**changes))
        assert caught.value.param == param
        assert (front.requests.running, front.requests.waiting) == (0, 0)


async def test_text_to_tokens_and_back() -> None:
    async with serving() as (front, _):
        asked = Tokenize(model="m", prompt="hé", spelled=True)
        found = await front.tokenize(msgspec.json.encode(asked))
        assert found == Tokens(
            ids=[104, 195, 169], max_length=64, spelling=[b"h", b"\xc3", b"\xa9"]
        )
        back = Detokenize(model="m", ids=[*found.ids, EOS])
        assert (await front.detokenize(msgspec.json.encode(back))).text == "hé<end>"
        chat = Tokenize(model="m", messages=[{"role": "user", "content": "hi"}])
        assert (await front.tokenize(msgspec.json.encode(chat))).ids == list(b"hi")
        for wrong in (Detokenize(model="m", ids=[512]), Detokenize(model="n", ids=[1])):
            with pytest.raises(RequestError):
                await front.detokenize(msgspec.json.encode(wrong))
