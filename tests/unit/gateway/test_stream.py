"""The frames of a stream, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.gateway.answers import Answer
from services.gateway.schema import ChatRequest, CompletionRequest
from services.gateway.stream import Asked, Frames
from services.gateway.translate import chat_asked, completion_asked
from starsd.errors import INTERNAL_ERROR, ProtocolError
from starsd.metrics import RequestClock, RequestMetrics
from starsd.protocol.events import Delta, Error, Event
from starsd.protocol.frames import FinishReason, Origin
from tests.fake_target import begin, delta, done, logprobs

USER = [{"role": "user", "content": "hi"}]


def parsed(data: bytes) -> list[Any]:
    *frames, rest = data.split(b"\n\n")
    assert rest == b""
    return [json.loads(f.removeprefix(b"data: ")) for f in frames if f != b"data: [DONE]"]


class Stream:
    """Events in, frames out; all prompts' targets are t0."""

    def __init__(self, asked: Asked) -> None:
        self._answer = Answer(asked.requests, RequestClock(RequestMetrics(CollectorRegistry())))
        self._frames = Frames(asked, self._answer)

    async def bytes(self, event: Event, part: int = 0) -> bytes:
        if isinstance(event, Error):
            await self._answer.fail(event.error)
        else:
            await self._answer.put(self._answer.parts[part], event, "t0")
        given = await self._answer.next()
        assert given is not None
        return self._frames.of(given)

    async def frames(self, event: Event, part: int = 0) -> list[Any]:
        return parsed(await self.bytes(event, part))


def chat(**fields: Any) -> Stream:
    body = {"model": "m", "messages": USER, "stream": True, **fields}
    return Stream(chat_asked(ChatRequest.model_validate(body), "id-1"))


async def begun(**fields: Any) -> Stream:
    stream = chat(**fields)
    await stream.bytes(begin())
    return stream


def completion(**fields: Any) -> Stream:
    body = {"model": "m", "stream": True, **fields}
    return Stream(completion_asked(CompletionRequest.model_validate(body), "id-1"))


USAGE = {"stream_options": {"include_usage": True}}
RUNNING = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


async def test_role_comes_first_with_the_fingerprint_and_the_served_name() -> None:
    (chunk,) = await chat().frames(begin())
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunk["system_fingerprint"] == "fp-1"
    assert (chunk["id"], chunk["model"]) == ("id-1", "tiny")
    assert chunk["object"] == "chat.completion.chunk"


async def test_held_back_text_makes_no_chunk() -> None:
    assert await (await begun()).bytes(delta("")) == b""


async def test_text_that_looks_like_a_frame_stays_inside_one() -> None:
    text = "a\n\ndata: [DONE]\n\n\u2028é"
    (chunk,) = await (await begun()).frames(delta(text))
    assert chunk["choices"][0]["delta"] == {"content": text}
    assert chunk["choices"][0]["finish_reason"] is None
    assert chunk["usage"] is None


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
async def test_end_flushes_held_text_then_finishes(reason: FinishReason) -> None:
    data = await (await begun()).bytes(done(reason, text="tail"))
    assert data.endswith(b"\n\ndata: [DONE]\n\n")
    text, finish = parsed(data)
    assert text["choices"][0]["delta"] == {"content": "tail"}
    assert "starsd" not in text
    assert finish["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": reason.value,
    }
    assert finish["usage"] is None
    assert finish["starsd"]["target"] == "t0"


async def test_usage_is_a_last_chunk_without_choices() -> None:
    finish, usage = await (await begun(**USAGE)).frames(done(tokens=2))
    assert finish["usage"] is None
    assert "starsd" not in finish
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 5
    assert usage["starsd"]["accepted"] == 7


async def test_usage_so_far_in_every_chunk() -> None:
    stream = chat(**RUNNING)
    (role,) = await stream.frames(begin())
    (text,) = await stream.frames(delta("ab", 2))
    await stream.bytes(delta("", 1))
    counts = [chunk["usage"] for chunk in (role, text, *await stream.frames(done(tokens=3)))]
    assert [one["completion_tokens"] for one in counts] == [0, 2, 3, 3]
    assert {one["prompt_tokens"] for one in counts} == {3}


async def test_an_error_is_its_only_frame() -> None:
    data = await (await begun()).bytes(Error(error=INTERNAL_ERROR))
    assert b"[DONE]" not in data
    assert parsed(data) == [INTERNAL_ERROR.as_json()]


async def test_each_choice_has_its_role_its_text_and_its_end_and_the_last_ends_all() -> None:
    stream = chat(n=2)
    assert [c["choices"][0]["index"] for c in await stream.frames(begin())] == [0, 1]
    (second,) = await stream.frames(delta("b", choice=1))
    assert second["choices"][0] == {
        "index": 1,
        "delta": {"content": "b"},
        "logprobs": None,
        "finish_reason": None,
    }
    first_end = await stream.bytes(done(choice=1))
    assert b"[DONE]" not in first_end
    assert "starsd" not in parsed(first_end)[0]
    last = await stream.bytes(done(FinishReason.LENGTH))
    assert last.endswith(b"data: [DONE]\n\n")
    (finish,) = parsed(last)
    assert finish["choices"][0]["finish_reason"] == "length"
    assert finish["starsd"]["accepted"] == 14


async def test_logprobs_wait_for_the_text_their_tokens_release() -> None:
    stream = await begun(logprobs=True, top_logprobs=1)
    assert await stream.bytes(delta("", logprobs=[logprobs("é".encode()[:1])])) == b""
    (chunk,) = await stream.frames(delta("é", logprobs=[logprobs("é".encode()[1:])]))
    content = chunk["choices"][0]["logprobs"]["content"]
    assert [token["bytes"] for token in content] == [[0xC3], [0xA9]]
    assert content[0] == {
        "token": "\ufffd",
        "logprob": -0.5,
        "bytes": [0xC3],
        "top_logprobs": [{"token": "top", "logprob": -0.25, "bytes": list(b"top")}],
    }
    await stream.bytes(delta("", logprobs=[logprobs(b"<end>")]))
    (finish,) = await stream.frames(done())
    assert finish["choices"][0]["delta"] == {}
    assert [t["token"] for t in finish["choices"][0]["logprobs"]["content"]] == ["<end>"]


async def test_origins_of_text_by_its_tokens() -> None:
    stream = await begun(starsd={"origins": True})
    origins = [Origin.ACCEPTED, Origin.ACCEPTED, Origin.BONUS]
    event = Delta(ids=[1, 2, 3], origins=origins, text="abc", lengths=[2, 0, 1])
    (chunk,) = await stream.frames(event)
    assert chunk["starsd"] == {
        "pieces": [{"text": "ab", "origin": "accepted"}, {"text": "c", "origin": "bonus"}]
    }
    tail, finish = await stream.frames(done(text="tail"))
    assert tail["starsd"] == {"pieces": [{"text": "tail", "origin": None}]}
    assert finish["starsd"]["rounds"] == 3


# -- completions ---------------------------------------------------------------------------------


async def test_completion_chunks_have_text_and_no_role() -> None:
    stream = completion(prompt="x")
    assert await stream.bytes(begin()) == b""
    (chunk,) = await stream.frames(delta("ab"))
    assert chunk["object"] == "text_completion"
    assert chunk["choices"] == [{"index": 0, "text": "ab", "logprobs": None, "finish_reason": None}]
    (finish,) = await stream.frames(done())
    assert finish["choices"][0] == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": "stop",
    }


async def test_completion_logprobs_are_lists_and_offsets_go_on_across_chunks() -> None:
    stream = completion(prompt="x", logprobs=1)
    await stream.bytes(begin())
    await stream.bytes(delta("ab", logprobs=[logprobs(b"ab")]))
    (chunk,) = await stream.frames(delta("cd", 2, logprobs=[logprobs(b"c"), logprobs(b"d")]))
    assert chunk["choices"][0]["logprobs"] == {
        "text_offset": [2, 3],
        "token_logprobs": [-0.5, -0.5],
        "tokens": ["c", "d"],
        "top_logprobs": [{"top": -0.25, "c": -0.5}, {"top": -0.25, "d": -0.5}],
    }


async def test_choices_of_several_prompts_are_numbered_on() -> None:
    stream = completion(prompt=["x", "y"], n=2, **USAGE)
    for part in (1, 0):
        await stream.bytes(begin(), part)
    (chunk,) = await stream.frames(delta("t", choice=1), part=1)
    assert chunk["choices"][0]["index"] == 3
    for part, choice in ((0, 0), (1, 0), (1, 1)):
        (finish,) = await stream.frames(done(choice=choice), part)
        assert finish["choices"][0]["index"] == 2 * part + choice
    _, usage = await stream.frames(done(choice=1), 0)
    assert usage["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 8,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_events_out_of_order_are_not_passed_on() -> None:
    orders: list[list[Event]] = [
        [delta("x")],
        [begin(), begin()],
        [begin(), delta("x", choice=1)],
        [begin(), done(choice=-1)],
    ]
    for events in orders:
        stream = chat()
        *right, wrong = events
        for event in right:
            await stream.bytes(event)
        with pytest.raises(ProtocolError, match="out of order"):
            await stream.bytes(wrong)
