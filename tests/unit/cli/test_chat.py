"""The chat client against a scripted gateway."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from starsd.cli.chat import Dialogue, Report, Show, Wishes, chunks, first_model
from starsd.errors import RemoteError, TransportError, UnavailableError

URL = "http://gateway"
WISHES = Wishes("m", max_tokens=5, seed=7)
Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(answer))


def ask(answer: Answer, show: Show = lambda _text, _origin: None) -> Report:
    return Dialogue(URL, WISHES, client(answer)).ask("Hi", show)


def events(*chunks: dict[str, Any], done: bool = True) -> str:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return ": a comment\n\n" + "".join(lines) + ("data: [DONE]\n\n" if done else "")


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}]}


LAST = {
    "choices": [],
    "usage": {"completion_tokens": 3},
    "starsd": {"rounds": 1, "proposed": 4, "accepted": 3, "fallbacks": 2, "target": "t1"},
}


def test_text_is_shown_as_it_comes_and_counted() -> None:
    shown: list[tuple[str, str | None]] = []
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, text=events(delta("Hel"), delta("lo"), LAST))

    report = ask(answer, lambda text, origin: shown.append((text, origin)))
    assert shown == [("Hel", None), ("lo", None)]
    assert report.tokens == 3
    assert asked[0]["max_tokens"] == 5
    assert asked[0]["seed"] == 7
    assert "temperature" not in asked[0]


def test_text_comes_with_its_origin() -> None:
    pieces = [{"text": "He", "origin": "accepted"}, {"text": "l", "origin": "bonus"}]
    chunk = {**delta("Hel"), "starsd": {"pieces": pieces}}
    shown: list[tuple[str, str | None]] = []
    report = ask(
        lambda _: httpx.Response(200, text=events(chunk, LAST)),
        lambda text, origin: shown.append((text, origin)),
    )
    assert shown == [("He", "accepted"), ("l", "bonus")]
    assert report.stats == LAST["starsd"]


def test_a_dialogue_remembers_what_was_answered() -> None:
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["messages"])
        if len(asked) == 2:
            return httpx.Response(500, json={"error": {"message": "broken"}})
        return httpx.Response(200, text=events(delta("Hel"), delta("lo"), LAST))

    dialogue = Dialogue(URL, WISHES, client(answer))
    dialogue.ask("one", lambda _text, _origin: None)
    with pytest.raises(RemoteError, match="broken"):
        dialogue.ask("two", lambda _text, _origin: None)
    dialogue.ask("three", lambda _text, _origin: None)
    assert asked[2] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "three"},
    ]


def test_summary_names_speed_and_acceptance() -> None:
    report = Report(asked=1.0, first=1.12, last=2.12, tokens=11, stats=LAST["starsd"])  # type: ignore[arg-type]
    assert report.summary() == (
        "TTFT 120 ms, 11 tokens, 10.0 tokens/s, acceptance 0.75 (3 of 4 proposed tokens), "
        "2 plain steps for want of a proposal, by t1"
    )


def test_summary_without_proposals_or_text() -> None:
    assert Report(asked=0.0, stats={"proposed": 0}).summary() == "0 tokens, nothing was proposed"


def test_a_refusal_is_told_in_the_gateways_words() -> None:
    body = {"error": {"message": "seed: too large", "type": "invalid_request_error"}}
    with pytest.raises(RemoteError, match="seed: too large"):
        ask(lambda _: httpx.Response(400, json=body))


def test_an_error_in_mid_answer_is_told() -> None:
    text = events(delta("a"), {"error": {"message": "target died", "type": "server_error"}})
    with pytest.raises(RemoteError, match="target died"):
        ask(lambda _: httpx.Response(200, text=text))


def test_a_stream_that_just_ends_is_an_error() -> None:
    with pytest.raises(TransportError, match="broke off"):
        list(chunks(events(delta("a"), done=False).splitlines()))


def test_nobody_listening_is_told() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(UnavailableError, match="nothing listens at http://gateway"):
        ask(refuse)


def test_first_model() -> None:
    models = {"data": [{"id": "a"}, {"id": "b"}]}
    assert first_model(URL, client(lambda _: httpx.Response(200, json=models))) == "a"


def test_no_model_yet() -> None:
    with pytest.raises(UnavailableError, match="no target yet"):
        first_model(URL, client(lambda _: httpx.Response(200, json={"data": []})))
