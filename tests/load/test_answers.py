"""Every fault of an answer is named, and right answers are read right."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.load.answers import (
    Answer,
    BadAnswerError,
    Speculation,
    Stream,
    Times,
    first_model,
    refusal,
    whole,
)
from tests.load.fake_gateway import (
    DONE,
    MAX_TOKENS,
    TEXTS,
    TOKENS,
    completion,
    delta,
    frame,
    stream,
    usage,
)

ASKED = 100.0
TEXT = "".join(TEXTS)
SPECULATION = Speculation(proposed=4, accepted=3)

BAD_STREAMS = {
    "no done": (stream()[:-1], "the stream ended without [DONE]"),
    "nothing": ([], "the stream ended without [DONE]"),
    "cut in a frame": ([*stream()[:2], stream()[2][:20]], "not a chunk"),
    "more after done": ([*stream(), delta("x")], "more after [DONE]"),
    "two dones": ([*stream(), DONE], "more after [DONE]"),
    "comment after done": ([*stream(), b": bye\n\n"], "more after [DONE]"),
    "unfinished done": ([*stream()[:-1], b"data: [DONE]\n"], "no blank line after [DONE]"),
    "no blank line": ([delta("a")[:-1], *stream()], "without a blank line between"),
    "not an event": ([b'{"choices": []}\n', *stream()], "neither data nor a comment"),
    "not JSON": ([b"data: {\n\n", *stream()], "not a chunk: "),
    "not UTF-8": ([b'data: {"id": "\xff"}\n\n', *stream()], "not a chunk: "),
    "error": ([delta("a"), frame(error={"message": "full"})], "an error in the stream: full"),
    "two answers": ([delta("a"), delta("b").replace(b"-1", b"-2")], "chunks of two answers"),
    "empty": (stream(texts=()), "an empty answer"),
    "no finish": ([delta("a"), usage(), DONE], "no finish_reason"),
    "two finishes": ([delta("a", "stop"), delta(None, "stop")], "a second finish_reason"),
    "text after finish": ([delta("a", "stop"), delta("b")], "text or a second"),
    "aborted": ([delta("a", "abort")], "not a chunk: Invalid enum value 'abort'"),
    "another choice": ([delta("a").replace(b'"index": 0', b'"index": 1')], "value 1 - at"),
    "no usage": ([delta("a", "stop"), DONE], "no usage"),
    "no tokens": (stream(completion_tokens=0), ">= 1 - at `$.usage.completion_tokens`"),
    "no prompt": (stream(prompt_tokens=0), ">= 1 - at `$.usage.prompt_tokens`"),
    "tokens as text": (stream(completion_tokens="6"), "Expected `int`, got `str`"),
    "wrong total": (stream(total_tokens=12), "total_tokens is not the sum"),
    "too many": (stream(completion_tokens=9, total_tokens=14), "more than 8 completion_tokens"),
    "early length": (stream(reason="length"), "finish_reason length before 8 tokens"),
}
BAD_COMPLETIONS = {
    "not JSON": (b"oops", "not a completion: "),
    "cut": (completion()[:-5], "not a completion: "),
    "no choices": (b'{"choices": [], "usage": {}}', "not a completion: "),
    "no usage": (json.dumps({**json.loads(completion()), "usage": None}).encode(), "$.usage"),
    "empty": (completion(text=""), "an empty answer"),
    "null": (completion(text=None), "an empty answer"),
    "aborted": (completion(reason="abort"), "Invalid enum value 'abort'"),
    "no tokens": (completion(completion_tokens=0), "$.usage.completion_tokens"),
    "wrong total": (completion(total_tokens=10), "total_tokens is not the sum"),
    "too many": (completion(completion_tokens=9, total_tokens=14), "more than 8"),
    "early length": (completion(reason="length"), "finish_reason length before 8 tokens"),
}


def read(parts: list[bytes], end: bytes = b"\n") -> Answer:
    """Lines come a second apart."""
    checked = Stream(MAX_TOKENS, ASKED)
    for second, line in enumerate(b"".join(parts).splitlines(), start=1):
        checked.take(line + end, ASKED + second)
    return checked.end()


@pytest.mark.parametrize(("parts", "message"), BAD_STREAMS.values(), ids=BAD_STREAMS)
def test_bad_streams(parts: list[bytes], message: str) -> None:
    with pytest.raises(BadAnswerError, match=re.escape(message)):
        read(parts)


@pytest.mark.parametrize(("body", "message"), BAD_COMPLETIONS.values(), ids=BAD_COMPLETIONS)
def test_bad_completions(body: bytes, message: str) -> None:
    with pytest.raises(BadAnswerError, match=re.escape(message)):
        whole(body, MAX_TOKENS)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_stream(end: bytes) -> None:
    # Two lines a frame: the first text is the third line, the end of [DONE] the fourteenth.
    assert read(stream(), end) == Answer(TEXT, TOKENS, SPECULATION, Times(3.0, 14.0))


def test_a_stream_with_comments() -> None:
    parts = [part for frame in stream() for part in (b": keep-alive\n\n", frame)]
    assert read(parts).text == TEXT


def test_an_empty_chunk_after_the_finish() -> None:
    assert read([delta(TEXT, "stop"), delta(None), usage(), DONE]).text == TEXT


def test_a_completion() -> None:
    assert whole(completion(), MAX_TOKENS) == Answer(TEXT, TOKENS, SPECULATION)


def test_length_at_the_limit() -> None:
    limit: dict[str, Any] = {
        "reason": "length",
        "completion_tokens": MAX_TOKENS,
        "total_tokens": 5 + MAX_TOKENS,
    }
    assert read(stream(**limit)).tokens == MAX_TOKENS
    assert whole(completion(**limit), MAX_TOKENS).tokens == MAX_TOKENS


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_text(name: str) -> None:
    thought = delta("hm ").replace(b'"content"', f'"{name}"'.encode())
    answer = read([thought, *stream()])
    assert answer.text == "hm " + TEXT
    assert answer.times is not None
    assert answer.times.first == 1.0


def test_no_speculation_is_told_by_most_servers() -> None:
    parts = [part for part in stream() if b"starsd" not in part]
    plain = frame(choices=[], usage={**json.loads(completion())["usage"]})
    assert read([*parts[:-1], plain, DONE]).speculation == Speculation()


def test_time_per_token_is_by_tokens() -> None:
    assert Times(first=1.0, last=3.5).per_token(6) == 0.5
    assert Times(first=1.0, last=3.5).per_token(1) is None


def test_refusals() -> None:
    assert str(refusal(503, b'{"error": {"message": "full"}}')) == "status 503: full"
    assert str(refusal(502, b"<html>bad gateway")) == "status 502: <html>bad gateway"


def test_models() -> None:
    assert first_model(b'{"data": [{"id": "a"}, {"id": "b"}]}') == "a"
    with pytest.raises(BadAnswerError, match="not a models"):
        first_model(b'{"data": []}')
