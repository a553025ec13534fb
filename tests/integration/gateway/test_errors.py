"""Every error in one shape, before and after the headers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import pytest

from starsd.errors import ContextLengthError, EngineError, OverloadedError
from starsd.protocol.events import Error
from starsd.protocol.frames import FinishReason
from tests.fake_target import BREAK, HANG, FakeTarget, Step, begin, delta, done
from tests.integration.gateway.star import CHAT, star

JSON = {"Content-Type": "application/json"}


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["X-Request-Id"]
    error: dict[str, Any] = body["error"]
    return error


MALFORMED: list[tuple[bytes, dict[str, str], str]] = [
    (b"[]", JSON, "JSON object"),
    (b'"x"', JSON, "JSON object"),
    (b"5", JSON, "JSON object"),
    (b"null", JSON, "body"),
    (b"", JSON, "body"),
    (b'{"model": "tiny", ', JSON, "not JSON"),
    (b"\xff\xfe\x00", JSON, "body"),
    (b"[" * 100_000, JSON, "body"),
    (b'{"seed": ' + b"1" * 5000 + b"}", JSON, "body"),
    (b'{"model": "tiny", "messages": []}', {"Content-Type": "text/plain"}, "Content-Type"),
    (b'{"model": "tiny", "messages": []}', {}, "Content-Type"),
    (b'{"\\ud800": 1}', JSON, "body"),
    (b'{"model":"tiny","messages":[{"role":"user","content":"\\ud800"}]}', JSON, "surrogate"),
]


async def test_malformed_bodies() -> None:
    async with star() as s:
        for content, headers, said in MALFORMED:
            response = await s.client.post(CHAT, content=content, headers=headers)
            error = error_of(response)
            assert response.status_code == 400, content[:40]
            assert error["type"] == "invalid_request_error"
            assert said in error["message"], content[:40]


async def test_routes_that_are_not_there() -> None:
    async with star() as s:
        lost = await s.client.get("/v1/nope")
        wrong = await s.client.get(CHAT)
        metrics = await s.client.get("/metrics")
    assert (lost.status_code, error_of(lost)["code"]) == (404, "not_found")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "POST"
    assert metrics.status_code == 404


async def test_a_body_over_the_limit() -> None:
    async def chunked() -> Any:
        yield b" " * 2000

    async with star(max_body_bytes=1024) as s:
        for content in (b" " * 2000, chunked()):
            response = await s.client.post(CHAT, content=content, headers=JSON)
            assert response.status_code == 413
            assert "1024 bytes" in error_of(response)["message"]


async def test_bad_values_name_field_and_value() -> None:
    async with FakeTarget().serving() as target, star([target]) as s:
        zero = await s.chat(max_tokens=0)
        stored = await s.chat(stream=True, store=True)
    assert (zero.status_code, stored.status_code) == (400, 400)
    assert error_of(zero)["param"] == "max_tokens"
    assert "max_tokens=0" in error_of(zero)["message"]
    assert error_of(stored)["code"] == "unsupported_parameter"
    assert target.seen == []


@pytest.mark.parametrize("count", [1, 2])
async def test_unknown_models(count: int) -> None:
    async with (
        FakeTarget().serving() as a,
        FakeTarget(name="t1", model="big").serving() as b,
        star([a, b][:count]) as s,
    ):
        for model, stream in itertools.product(("no-such", "", None), (False, True)):
            response = await s.chat(model=model, stream=stream)
            error = error_of(response)
            assert (response.status_code, error["code"]) == (404, "model_not_found")
            assert error["param"] == "model"
            assert ("big" in error["message"]) == (count == 2)
            assert "tiny" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_targets_refusal_is_passed_on(stream: bool) -> None:
    refusal = ContextLengthError("prompt has 600 tokens, the context 512", param="messages").body()
    async with FakeTarget(refusal=refusal).serving() as target, star([target]) as s:
        response = await s.chat(stream=stream)
    error = error_of(response)
    assert response.status_code == 400
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert error["message"] == refusal.message


@pytest.mark.parametrize("stream", [False, True])
async def test_retry_after_is_passed_on(stream: bool) -> None:
    refusal = OverloadedError("64 requests wait already", retry_after_s=3).body()
    async with FakeTarget(refusal=refusal).serving() as target, star([target]) as s:
        response = await s.chat(stream=stream)
    assert response.status_code == 429
    assert response.headers["Retry-After"] == "3"
    assert error_of(response)["type"] == "rate_limit_error"


FAILED = Error(error=EngineError("it broke").body())


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ([FAILED], "it broke"),
        ([BREAK], "failed in the middle"),
        ([], "failed in the middle"),
        ([b"garbage\n"], "failed in the middle"),
        ([begin()], "failed in the middle"),
        ([done(FinishReason.CANCELLED)], "cancelled"),
    ],
)
async def test_an_error_after_the_headers(ending: list[Step], said: str) -> None:
    steps: list[Step] = [begin(), delta("x"), *ending]
    async with FakeTarget(script=lambda _: steps).serving() as target, star([target]) as s:
        *chunks, last = await s.frames()
        assert set(last) == {"error"}
        assert said in last["error"]["message"]
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
        whole = await s.client.get("/health/live")
        assert whole.status_code == 200
        assert 'starsd:requests_total{outcome="error"} 1.0' in await s.metrics()


async def test_an_error_mid_answer_when_not_streaming_is_its_status() -> None:
    steps: list[Step] = [begin(), delta("x"), FAILED]
    async with FakeTarget(script=lambda _: steps).serving() as target, star([target]) as s:
        response = await s.chat()
    assert (response.status_code, error_of(response)["code"]) == (500, "engine_error")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_deadline_of_a_request(stream: bool) -> None:
    target = FakeTarget(script=lambda _: [begin(), delta("x"), HANG])
    async with target.serving(), star([target], request_timeout_s=1.5) as s:
        response = await s.chat(stream=stream)
        assert "1.5 s" in response.text
        assert response.status_code == (200 if stream else 504)
        async with asyncio.timeout(5):
            await target.left.wait()
