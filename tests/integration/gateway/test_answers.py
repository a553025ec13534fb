"""Answers through a real gateway: whole and streamed, and what the target is asked."""

from __future__ import annotations

import asyncio

from starsd.protocol.frames import FinishReason
from tests.fake_target import FakeTarget, Step, begin, delta, done
from tests.integration.gateway.star import USER, parse_frames, star


async def test_whole_and_stream_agree() -> None:
    async with FakeTarget().serving() as target, star([target]) as s:
        whole = (await s.chat()).json()
        frames = await s.frames()
    choice = whole["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Hello world", "refusal": None}
    assert whole["object"] == "chat.completion"
    assert whole["system_fingerprint"] == "fp-1"
    assert whole["usage"]["total_tokens"] == 5
    assert frames[-1] == "[DONE]"
    chunks = frames[:-1]
    content = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(content) == choice["message"]["content"]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [choice["finish_reason"]]
    assert chunks[-1]["starsd"] == whole["starsd"]
    assert whole["starsd"] == {
        "rounds": 3,
        "proposed": 9,
        "accepted": 7,
        "fallbacks": 1,
        "target": "t0",
    }


async def test_usage_only_when_asked_and_only_last() -> None:
    async with FakeTarget().serving() as target, star([target]) as s:
        plain = await s.frames()
        asked = await s.frames(stream_options={"include_usage": True})
        declined = await s.frames(stream_options={"include_usage": False})
    for frames in (plain, declined):
        assert all(frame["usage"] is None and frame["choices"] for frame in frames[:-1])
    *chunks, usage, end = asked
    assert end == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == 3
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert sum(c["choices"][0]["finish_reason"] is not None for c in chunks) == 1


async def test_length_is_reported() -> None:
    steps: list[Step] = [begin(), delta("x"), done(FinishReason.LENGTH, tokens=1)]
    async with FakeTarget(script=lambda _: steps).serving() as target, star([target]) as s:
        response = (await s.chat(max_tokens=1)).json()
        assert response["choices"][0]["finish_reason"] == "length"
        assert target.seen[0].max_tokens == 1


async def test_held_back_text_is_never_an_empty_chunk() -> None:
    steps: list[Step] = [begin(), delta(""), delta("ab", 3), delta(""), done(text="tail")]
    async with FakeTarget(script=lambda _: steps).serving() as target, star([target]) as s:
        chunks = (await s.frames())[:-1]
        whole = (await s.chat()).json()
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"content": "ab"},
        {"content": "tail"},
        {},
    ]
    assert whole["choices"][0]["message"]["content"] == "abtail"


async def test_line_separators_in_text_survive() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x1cf\r\ng"
    steps: list[Step] = [begin(), delta(text), done()]
    async with FakeTarget(script=lambda _: steps).serving() as target, star([target]) as s:
        assert (await s.chat()).json()["choices"][0]["message"]["content"] == text
        chunks = (await s.frames())[:-1]
    assert chunks[1]["choices"][0]["delta"]["content"] == text


async def test_what_the_target_is_asked() -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": -1}
    async with FakeTarget().serving() as target, star([target]) as s:
        await s.chat(stop=["a", "b"], max_completion_tokens=9, user="u", **fields)
        (request,) = target.seen
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 5)
    assert (sampling.min_p, sampling.seed) == (0.1, 2**64 - 1)
    assert (request.messages, request.stop, request.max_tokens) == (USER, ("a", "b"), 9)


async def test_f10_request_ids_are_echoed_and_never_keys() -> None:
    """Two calls share the client's id: each gets its own answer under an id of ours."""
    async with (
        FakeTarget(
            script=lambda r: [begin(), 0.1, delta(r.messages[0]["content"]), done()]
        ).serving() as target,
        star([target]) as s,
    ):
        headers = {"X-Request-Id": "same"}

        async def ask(word: str) -> tuple[str, str]:
            body = {"model": "tiny", "messages": [{"role": "user", "content": word}]}
            response = await s.client.post("/v1/chat/completions", json=body, headers=headers)
            assert response.headers["X-Request-Id"] == "same"
            answer = response.json()
            return answer["id"], answer["choices"][0]["message"]["content"]

        answers = [await a for a in [asyncio.ensure_future(ask(w)) for w in ("one", "two")]]
    ids = {request_id for request_id, _ in answers}
    assert [word for _, word in answers] == ["one", "two"]
    assert len(ids) == 2
    assert "same" not in ids
    assert {request.id for request in target.seen} == ids


async def test_own_request_id_where_the_client_sent_none_usable() -> None:
    async with FakeTarget().serving() as target, star([target]) as s:
        response = await s.chat()
        assert response.headers["X-Request-Id"] == response.json()["id"]
        long = await s.client.get("/v1/models", headers={"X-Request-Id": "x" * 500})
        assert long.headers["X-Request-Id"].startswith("chatcmpl-")


async def test_silence_is_filled_with_comments() -> None:
    """Before the first event, when headers have to go out early, and between events."""
    steps: list[Step] = [0.3, begin(), 0.3, delta("x"), done()]
    async with (
        FakeTarget(script=lambda _: steps).serving() as target,
        star([target], keepalive_s=0.05) as s,
    ):
        text = (await s.chat(stream=True)).text
    before, _, after = text.partition('"role":"assistant"')
    assert before.count(": keep-alive\n\n") >= 1
    assert after.count(": keep-alive\n\n") >= 1
    assert parse_frames(text)[-1] == "[DONE]"


async def test_a_quick_answer_has_no_comments() -> None:
    async with FakeTarget().serving() as target, star([target]) as s:
        assert ": keep-alive" not in (await s.chat(stream=True)).text
