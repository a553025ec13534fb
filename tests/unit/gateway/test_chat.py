"""The frames of a stream, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.gateway.chat import Frames
from starsd.errors import INTERNAL_ERROR
from starsd.protocol.events import Error, Generate
from starsd.protocol.frames import FinishReason
from starsd.protocol.sampling import SamplingParams
from tests.fake_target import begin, delta, done

REQUEST = Generate(id="id-1", model="tiny", messages=[], sampling=SamplingParams(seed=1))


def parsed(data: bytes) -> list[Any]:
    *frames, rest = data.split(b"\n\n")
    assert rest == b""
    return [json.loads(f.removeprefix(b"data: ")) for f in frames if f != b"data: [DONE]"]


def frames(*, include_usage: bool = False) -> Frames:
    made = Frames(REQUEST, include_usage=include_usage)
    made.of(begin(), "t0")
    return made


def test_role_comes_first_with_the_fingerprint() -> None:
    (chunk,) = parsed(Frames(REQUEST, include_usage=False).of(begin(), "t0"))
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunk["system_fingerprint"] == "fp-1"
    assert (chunk["id"], chunk["model"]) == ("id-1", "tiny")
    assert chunk["object"] == "chat.completion.chunk"


def test_held_back_text_makes_no_chunk() -> None:
    assert frames().of(delta(""), "t0") == b""


def test_text_that_looks_like_a_frame_stays_inside_one() -> None:
    text = "a\n\ndata: [DONE]\n\n\u2028é"
    (chunk,) = parsed(frames().of(delta(text), "t0"))
    assert chunk["choices"][0]["delta"] == {"content": text}
    assert chunk["choices"][0]["finish_reason"] is None
    assert chunk["usage"] is None


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_end_flushes_held_text_then_finishes(reason: FinishReason) -> None:
    data = frames().of(done(reason, text="tail"), "t0")
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


def test_usage_is_a_last_chunk_without_choices() -> None:
    finish, usage = parsed(frames(include_usage=True).of(done(tokens=2), "t0"))
    assert finish["usage"] is None
    assert "starsd" not in finish
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 5
    assert usage["starsd"]["accepted"] == 7


def test_an_error_is_its_only_frame() -> None:
    data = frames().of(Error(error=INTERNAL_ERROR), "t0")
    assert b"[DONE]" not in data
    assert parsed(data) == [INTERNAL_ERROR.as_json()]
