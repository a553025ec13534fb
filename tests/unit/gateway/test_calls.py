"""Tool calls in chunks, and in whole answers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from services.gateway.chat import ChatWriter
from starsd.protocol.events import Delta
from starsd.protocol.frames import Origin
from starsd.protocol.tools import CallDelta
from tests.fake_target import delta, logprobs

NAME = CallDelta(index=0, id="call_1", name="f")
ARGUMENTS = [CallDelta(index=0, arguments='{"a"'), CallDelta(index=0, arguments=": 1}")]
OTHER = [CallDelta(index=1, id="call_2", name="g"), CallDelta(index=1, arguments="{}")]
BROKEN = CallDelta(index=0, broken="<tool_call>{", rest="{", at=3)


def part(text: str, *calls: CallDelta, spelt: bytes = b"") -> Delta:
    found = [logprobs(spelt)] if spelt else None
    return Delta(ids=[7], origins=[Origin.PLAIN], text=text, calls=[*calls], logprobs=found)


def chunks(writer: ChatWriter, *parts: Delta) -> list[Any]:
    """The deltas of all chunks."""
    found = []
    for one in parts:
        writer.take(one)
        found += writer.pieces()
    return [json.loads(msgspec.json.encode(choice.delta)) for choice in found]


def whole(*parts: Delta, reason: str = "stop") -> dict[str, Any]:
    writer = ChatWriter(0, logprobs=False, stream=False)
    for one in parts:
        writer.take(one)
    return dict(msgspec.to_builtins(writer.whole(reason)))


def streaming(*, logprobs: bool = False) -> ChatWriter:
    return ChatWriter(0, logprobs=logprobs, stream=True)


def test_a_name_first_then_fragments_each_in_a_chunk() -> None:
    named = {"index": 0, "id": "call_1", "type": "function"}
    assert chunks(streaming(), part("ok", NAME), part("", *ARGUMENTS)) == [
        {"content": "ok"},
        {"tool_calls": [{**named, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ]


@pytest.mark.parametrize(
    ("reason", "calls", "told"),
    [
        ("stop", [NAME, *ARGUMENTS], "tool_calls"),
        ("length", [NAME, *ARGUMENTS], "length"),
        ("stop", [], "stop"),
        ("stop", [NAME, BROKEN], "stop"),
        ("stop", [NAME, BROKEN, *OTHER], "tool_calls"),
    ],
)
def test_why_it_ended(reason: str, calls: list[CallDelta], told: str) -> None:
    writer = streaming()
    writer.take(part("abc", *calls))
    assert writer.last(reason).finish_reason == told
    assert whole(part("abc", *calls), reason=reason)["finish_reason"] == told


def test_whole_calls() -> None:
    choice = whole(part("", NAME, ARGUMENTS[0]), part("", ARGUMENTS[1], *OTHER))
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_text_beside_calls() -> None:
    message = whole(part("ok", NAME, *ARGUMENTS))["message"]
    assert message["content"] == "ok"
    assert len(message["tool_calls"]) == 1


def test_an_answer_without_calls_has_none() -> None:
    assert whole(delta(""))["message"] == {"role": "assistant", "content": "", "refusal": None}


def test_a_broken_call_is_text_in_its_place() -> None:
    message = whole(part("abc", NAME), part("defghi", BROKEN))["message"]
    assert message["content"] == "abcdef<tool_call>{ghi"
    assert "tool_calls" not in message


def test_in_a_stream_only_what_is_not_out_yet() -> None:
    told = chunks(streaming(), part("", NAME), part("defghi", BROKEN))
    assert told[1:] == [{"content": "def{ghi"}]


def test_log_probabilities_come_with_what_their_tokens_told() -> None:
    writer = streaming(logprobs=True)
    writer.take(part("", spelt=b"a"))
    assert writer.pieces() == []
    writer.take(part("", NAME, *ARGUMENTS, spelt=b"b"))
    first, *rest = writer.pieces()
    assert first.logprobs is not None
    assert [one.token for one in first.logprobs.content] == ["a", "b"]
    assert [one.logprobs for one in rest] == [None, None]
