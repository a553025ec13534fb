"""The official client, sync and async, streaming and not."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from starsd.errors import EngineError
from starsd.protocol.events import Error
from tests.fake_target import FakeTarget, Step, begin, delta
from tests.integration.gateway.star import Star, star

MESSAGES: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hi"}]
BROKEN: list[Step] = [
    begin(),
    delta("x"),
    Error(error=EngineError("the engine broke at token 5").body()),
]


def client(s: Star) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=0, timeout=20)


async def test_whole() -> None:
    async with FakeTarget().serving() as target, star([target]) as s, client(s) as api:
        answer = await api.chat.completions.create(model="tiny", messages=MESSAGES, seed=5)
        assert answer.choices[0].message.content == "Hello world"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2
        # What it got can be sent back as it is.
        again = [*MESSAGES, answer.choices[0].message, *MESSAGES]
        await api.chat.completions.create(model="tiny", messages=again)  # type: ignore[arg-type]
        assert [m["role"] for m in target.seen[1].messages] == ["user", "assistant", "user"]


async def test_stream() -> None:
    async with FakeTarget().serving() as target, star([target]) as s, client(s) as api:
        stream = await api.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Hello world"
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None, None, None, "stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 5


async def test_an_error_in_the_stream_is_raised_with_our_message() -> None:
    async with (
        FakeTarget(script=lambda _: BROKEN).serving() as target,
        star([target]) as s,
        client(s) as api,
    ):
        stream = await api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="broke at token 5"):
            async for _ in stream:
                pass


async def test_errors_have_the_clients_types() -> None:
    async with FakeTarget().serving() as target, star([target]) as s, client(s) as api:
        with pytest.raises(openai.NotFoundError) as missing:
            await api.chat.completions.create(model="no-such", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            await api.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=0)
        assert bad.value.param == "max_tokens"
        with pytest.raises(openai.BadRequestError) as unserved:
            await api.chat.completions.create(model="tiny", messages=MESSAGES, store=True)
        assert unserved.value.code == "unsupported_parameter"


async def test_models() -> None:
    async with FakeTarget().serving() as target, star([target]) as s, client(s) as api:
        assert [model.id async for model in await api.models.list()] == ["tiny"]
        assert (await api.models.retrieve("tiny")).owned_by == "starsd"


async def test_closing_a_stream_early_frees_the_target() -> None:
    steps: list[Step] = [begin(), *[delta("x")] * 5, "hang"]
    async with (
        FakeTarget(script=lambda _: steps).serving() as target,
        star([target]) as s,
        client(s) as api,
    ):
        stream = await api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        async with stream:
            async for _ in stream:
                break
        async with asyncio.timeout(10):
            await target.left.wait()


async def test_sync_client() -> None:
    def use(url: str) -> tuple[str | None, str]:
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=20) as api:
            whole = api.chat.completions.create(model="tiny", messages=MESSAGES)
            stream = api.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            return whole.choices[0].message.content, text

    async with FakeTarget().serving() as target, star([target]) as s:
        assert await asyncio.to_thread(use, s.url) == ("Hello world", "Hello world")
