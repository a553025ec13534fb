"""Request validation and edge values (rows C of the cases), through gateway and target."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.schema import ChatRequest, CompletionRequest
from services.gateway.unserved import CHAT as UNSERVED_CHAT
from services.gateway.unserved import COMPLETION as UNSERVED_COMPLETION
from tests.cases.star import (
    CHAT,
    COMPLETIONS,
    ECHO,
    HASH,
    Cases,
    chat_body,
    completion_body,
    error_of,
    message_of,
)

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_c1_no_tokens_is_refused_and_not_unlimited(cases: Cases, limit: str) -> None:
    asked: dict[str, Any] = {limit: 0}
    response = cases.post(chat_body("hi", **asked))
    assert (response.status_code, error_of(response)["param"]) == (400, limit)
    completion = cases.post(completion_body("hi", max_tokens=0), COMPLETIONS)
    assert completion.status_code == 400


def test_c2_null_is_absent(cases: Cases) -> None:
    optional = {*ChatRequest.model_fields, *UNSERVED_CHAT} - {"model", "messages"}
    expected = message_of(cases.chat("hi"))
    for field in sorted(optional - {"temperature"}):
        assert message_of(cases.chat("hi", **{field: None})) == expected, field
    optional = {*CompletionRequest.model_fields, *UNSERVED_COMPLETION} - {"model", "prompt"}
    text = cases.completion("hi")["choices"][0]["text"]
    for field in sorted(optional - {"temperature"}):
        assert cases.completion("hi", **{field: None})["choices"][0]["text"] == text, field
    for field in ("content", "name", "tool_calls"):
        turns = [USER, {"role": "assistant", field: None}, USER]
        assert cases.post({"model": ECHO, "messages": turns}).status_code == 200


def test_c3_a_prompt_over_the_context_is_refused_with_both_numbers(cases: Cases) -> None:
    # one token for the role, one for the assistant's
    fits, over = "x" * (2048 - 3), "x" * (2048 - 2)
    assert cases.chat(fits)["usage"]["completion_tokens"] == 1
    for body, path in (
        (chat_body(over), CHAT),
        (completion_body("x" * 512), COMPLETIONS),
        (completion_body([65] * 513, n=2), COMPLETIONS),
    ):
        error = error_of(cases.post(body, path))
        assert error["code"] == "context_length_exceeded"
        context, prompt = (2048, 2048) if path == CHAT else (512, len(body["prompt"]))
        assert str(context) in error["message"]
        assert str(prompt) in error["message"]


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}])
def test_c4_a_turn_of_tool_calls_may_lack_content(cases: Cases, content: dict[str, Any]) -> None:
    turn = {"role": "assistant", "tool_calls": [CALL], **content}
    assert cases.post({"model": ECHO, "messages": [USER, turn, USER]}).status_code == 200


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_c5_an_assistant_turn_may_be_empty(cases: Cases, content: dict[str, Any]) -> None:
    turns = [USER, {"role": "assistant", **content}, USER]
    assert cases.post({"model": ECHO, "messages": turns}).status_code == 200


def test_c7_text_parts_are_joined_and_images_refused_by_name(cases: Cases) -> None:
    def turns(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"model": ECHO, "messages": [{"role": "user", "content": list(parts)}]}

    a, b = ({"type": "text", "text": text} for text in "ab")
    assert message_of(cases.post(turns(a, b)).json()) == "ab"
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    error = error_of(cases.post(turns(a, image)))
    assert error["param"] == "messages[0].content[1].type"
    assert "image_url" in error["message"]


@pytest.mark.parametrize(
    "bias",
    [{"99999999": 5}, {"260": 1}, {"AI": 1}, {"-1": 1}, {"5": 1e39}, {"5": -101}, {"5": "x"}],
)
def test_c10_a_bias_beyond_vocabulary_or_bounds_is_refused(
    cases: Cases, bias: dict[str, Any]
) -> None:
    for body, path in (
        (chat_body("hi", logit_bias=bias), CHAT),
        (completion_body("hi", logit_bias=bias), COMPLETIONS),
    ):
        response = cases.post(body, path)
        assert response.status_code == 400
        assert error_of(response)["param"].startswith("logit_bias")
    assert message_of(cases.chat("hi")) == "hi"


def test_c10_a_bias_is_obeyed(cases: Cases) -> None:
    assert message_of(cases.chat("hi", logit_bias={"33": 100}, max_tokens=3)) == "!!!"
    assert "i" not in message_of(cases.chat("hi", logit_bias={"105": -100}, max_tokens=9))


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": True, "top_logprobs": 1_000_000},
        {"logprobs": True, "top_logprobs": 21},
        {"logprobs": True, "top_logprobs": -1},
        {"top_logprobs": 3},
        {"logprobs": 3},
    ],
)
def test_c11_top_logprobs_are_bounded(cases: Cases, fields: dict[str, Any]) -> None:
    response = cases.post(chat_body("hi", **fields))
    assert response.status_code == 400
    assert "logprobs" in error_of(response)["param"]
    assert cases.post(completion_body("hi", logprobs=21), COMPLETIONS).status_code == 400


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
def test_c12_an_unknown_model_is_404(cases: Cases, path: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        CHAT: {"messages": [USER]},
        COMPLETIONS: {"prompt": "x"},
        "/tokenize": {"prompt": "x"},
        "/detokenize": {"tokens": [1]},
    }
    for model in ({"model": "no-such"}, {"model": ""}, {"model": None}, {}):
        response = cases.post({**bodies[path], **model}, path)
        error = error_of(response)
        assert (response.status_code, error["code"]) == (404, "model_not_found")
        assert "echo" in error["message"]


def test_c13_each_model_answers_by_its_own_name(cases: Cases) -> None:
    for name in (ECHO, HASH):
        for body in (cases.chat("hi", model=name), *cases.frames("hi", model=name)):
            assert body["model"] == name
    assert message_of(cases.chat("hi", model="parrot")) == "hi"
    assert cases.chat("hi", model="parrot")["model"] == ECHO
    listed = {one["id"]: one["root"] for one in cases.http.get("/v1/models").json()["data"]}
    assert listed == {"echo": "echo", "parrot": "echo", "hash": "hash", "faulty": "faulty"}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"[]", "application/json"),
        (b'"x"', "application/json"),
        (b'{"model": "echo", "messages": [{"role"', "application/json"),
        (b'{"model": "echo", "messages": []}', "text/plain"),
        (b"\xff", "application/json"),
        (b"", "application/json"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
def test_c15_malformed_bodies_are_400(cases: Cases, path: str, content: bytes, kind: str) -> None:
    response = cases.http.post(path, content=content, headers={"Content-Type": kind})
    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"
