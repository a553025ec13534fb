"""Stream protocol and usage (rows B of the cases)."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.cases.star import (
    CHAT,
    COMPLETIONS,
    FAULTY,
    HASH,
    Cases,
    chat_body,
    data_of,
    error_of,
    reasons_of,
    text_of,
)
from tests.fake_target import FakeTarget, Step, begin, delta, done
from tests.integration.gateway.star import star

REASONS = {"stop", "length", "tool_calls", "content_filter"}
USAGE = {"stream_options": {"include_usage": True}}


def usages(frames: list[dict[str, Any]]) -> list[Any]:
    return [frame["usage"] for frame in frames]


def test_b1_one_chunk_ends_each_choice_then_usage_then_done(cases: Cases) -> None:
    frames = cases.frames("ab", n=2, **USAGE)
    for index in (0, 1):
        reasons = reasons_of(frames, index)
        assert reasons == [None] * (len(reasons) - 1) + ["stop"]
        assert text_of(frames, index) == "ab"
    assert [bool(frame["choices"]) for frame in frames] == [True] * (len(frames) - 1) + [False]


def test_b2_finish_reason_is_null_until_the_end(cases: Cases) -> None:
    *running, last = reasons_of(cases.frames("some words"))
    assert set(running) == {None}
    assert last == "stop"


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 2}, {"stop": "m"}])
def test_b3_finish_reasons_are_those_of_openai(cases: Cases, fields: dict[str, Any]) -> None:
    assert cases.chat("some words", **fields)["choices"][0]["finish_reason"] in REASONS
    assert reasons_of(cases.frames("some words", **fields))[-1] in REASONS


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_b4_the_limit_is_length(cases: Cases, limit: str) -> None:
    body = cases.chat("ab", **{limit: 1})
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 1
    assert reasons_of(cases.frames("ab", **{limit: 1}))[-1] == "length"


def test_b6_usage_is_on_the_last_chunk_alone(cases: Cases) -> None:
    *chunks, last = cases.frames("ab", **USAGE)
    assert usages(chunks) == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"] == cases.chat("ab")["usage"]
    assert last["usage"]["completion_tokens"] == 3  # the end token counts


def test_b7_no_chunk_has_usage_by_default(cases: Cases) -> None:
    assert not any(usages(cases.frames("ab")))
    running = cases.frames(
        "ab", stream_options={**USAGE["stream_options"], "continuous_usage_stats": True}
    )
    counts = [usage["completion_tokens"] for usage in usages(running)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 3)


@pytest.mark.parametrize("fields", [{}, {"stream_options": {"include_usage": False}}])
def test_b8_no_chunk_without_choices_unless_asked(cases: Cases, fields: dict[str, Any]) -> None:
    assert all(frame["choices"] for frame in cases.frames("ab", **fields))


def test_b10_completions_end_as_chats_do(cases: Cases) -> None:
    fields = {"model": HASH, "max_tokens": 5, "n": 2}
    frames = cases.completion_frames("abc", **fields, **USAGE)
    for index in (0, 1):
        reasons = reasons_of(frames, index)
        assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert usages(frames)[:-1] == [None] * (len(frames) - 1)
    whole = cases.completion("abc", **fields)
    assert frames[-1]["usage"] == whole["usage"]
    assert [text_of(frames, i) for i in (0, 1)] == [c["text"] for c in whole["choices"]]
    assert all(frame["choices"] for frame in cases.completion_frames("abc", **fields))


def test_b11_an_error_after_the_headers_is_a_frame(cases: Cases) -> None:
    counted = 'starsd:requests_total{outcome="error"}'
    before = value(cases, counted)
    response = cases.post(chat_body("boom and more", model=FAULTY, stream=True))
    assert response.status_code == 200
    *chunks, last = data_of(response.text)
    assert '"error"' in last
    assert "broken at token 5" in last
    assert not any('"finish_reason":"' in chunk for chunk in chunks)
    assert value(cases, counted) == before + 1
    assert cases.chat("fine", model=FAULTY)["choices"][0]["finish_reason"] == "stop"


def value(cases: Cases, name: str) -> float:
    lines = [line for line in cases.gateway.metrics().splitlines() if line.startswith(name)]
    return float(lines[0].rpartition(" ")[2])


def test_b12_the_sdk_raises_our_message(cases: Cases) -> None:
    with cases.openai() as client:
        stream = client.chat.completions.create(
            model=FAULTY, messages=[{"role": "user", "content": "boom!"}], stream=True
        )
        with pytest.raises(openai.APIError, match="broken at token 5"):
            for _ in stream:
                pass


def test_b13_a_long_prompt_ends_as_any_other(cases: Cases) -> None:
    frames = cases.frames("word " * 390, max_tokens=10)
    assert reasons_of(frames)[-1] == "length"
    response = cases.post(chat_body("word " * 8000, max_tokens=10, stream=True))
    assert error_of(response)["code"] == "context_length_exceeded"


async def test_b15_silence_is_filled_with_comments() -> None:
    steps: list[Step] = [0.5, begin(), delta("x"), done()]
    async with (
        FakeTarget(script=lambda _: steps).serving() as target,
        star([target], keepalive_s=0.05) as s,
    ):
        text = (await s.chat(stream=True)).text
        assert text.startswith(": keep-alive\n\n")
        async with openai.AsyncOpenAI(base_url=f"{s.url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "x"}], stream=True
            )
            chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "x"


def test_b16_every_error_has_one_shape(cases: Cases) -> None:
    http = cases.http
    for response, status in [
        (cases.post(chat_body("x" * 5000)), 400),
        (cases.post(chat_body("x", model="none")), 404),
        (http.post(CHAT, content=b'{"model":', headers={"Content-Type": "application/json"}), 400),
        (http.get("/v1/none"), 404),
        (http.get(CHAT), 405),
        (http.put(COMPLETIONS), 405),
        (cases.post({"model": "echo", "messages": [], "temperature": "hot"}), 400),
        (cases.post({"model": "echo"}, "/tokenize"), 400),
        (cases.post({"model": "echo", "tokens": ["a"]}, "/detokenize"), 400),
        (http.get("/v1/models/none"), 404),
    ]:
        assert response.status_code == status, response.text
        assert error_of(response)["message"]
