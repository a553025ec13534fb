"""A gateway, two models with a hub each, and a Redis, all real processes, for the cases.

``echo`` repeats the last message, a token a byte, so a test chooses every token; its hub proposes
the same, and more after the end. ``hash`` says what looks random; its hub is wrong after three
texts in ten. ``faulty`` breaks where it is told to. All are asked over HTTP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai

from starsd.check.lab import Lab, Service
from tests.livestar import scripted_step

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ECHO, HASH, FAULTY = "echo", "hash", "faulty"
DEADLINE_S = 60.0
STEP_S = 0.004
"""Of a target, so that a hub has joined before an answer is over."""
PATIENT = {"wait_budget": 250, "ngram": 0, "depth_control": "fixed"}
"""Waits for every proposal, so that speculation is certain."""
SCRIPTED = "tests.scripted:{}Model"


class Cases:
    """The star, and ways to ask it. ``frames`` are a stream's JSON chunks; ``[DONE]`` is checked
    and left out."""

    def __init__(self) -> None:
        self.lab = Lab(heartbeat_s=0.2, pod_ttl_s=5.0)

    def start(self) -> None:
        aliases = json.dumps(["parrot"])
        self._target(ECHO, served_model_aliases=aliases, max_sequences=8, max_waiting=8)
        self._target(HASH, max_sequences=16, max_length=512)
        self._target(FAULTY, drafting=False)
        for name, model in ((ECHO, "Echo"), (HASH, "Drift")):
            script = SCRIPTED.format(model)
            self.lab.start(f"{name}-hub", "draft", scripted=script, namespace=name)
        urls = [self.lab.services[name].url for name in (ECHO, HASH, FAULTY)]
        self.lab.start("gateway", "gateway", targets=json.dumps(urls), probe_interval_s=0.2)
        self.lab.wait_ready(DEADLINE_S)
        for name in (ECHO, HASH):
            self._wait_for_drafts(name)
        self.http = httpx.Client(base_url=self.gateway.url, timeout=DEADLINE_S, trust_env=False)

    def _target(self, name: str, **settings: Any) -> None:
        script = SCRIPTED.format(name.title())
        given = {"served_model_name": name, "namespace": name, **PATIENT, **settings}
        with scripted_step(STEP_S):
            self.lab.start(name, "target", scripted=script, **given)

    def _wait_for_drafts(self, name: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.lab.services[name].hubs_usable:
            assert time.monotonic() < deadline, f"{name} has no hub"
            time.sleep(0.05)

    @property
    def gateway(self) -> Service:
        return self.lab.services["gateway"]

    def openai(self) -> openai.OpenAI:
        url = f"{self.gateway.url}/v1"
        return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=DEADLINE_S)

    def post(self, body: Any, path: str = CHAT) -> httpx.Response:
        return self.http.post(path, json=body)

    def chat(self, content: str, **fields: Any) -> dict[str, Any]:
        """A whole answer."""
        return answered(self.post(chat_body(content, **fields)))

    def frames(self, content: str, **fields: Any) -> list[dict[str, Any]]:
        return parsed(self.post(chat_body(content, stream=True, **fields)))

    def completion(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        return answered(self.post(completion_body(prompt, **fields), COMPLETIONS))

    def completion_frames(self, prompt: Any, **fields: Any) -> list[dict[str, Any]]:
        body = completion_body(prompt, stream=True, **fields)
        return parsed(self.post(body, COMPLETIONS))


def chat_body(content: str, model: str = ECHO, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": model, "messages": messages, "temperature": 0, **fields}


def completion_body(prompt: Any, model: str = HASH, **fields: Any) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, "temperature": 0, **fields}


def answered(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def parsed(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"].startswith("text/event-stream")
    *frames, done = data_of(response.text)
    assert done == "[DONE]"
    return [json.loads(frame) for frame in frames]


def data_of(text: str) -> list[str]:
    """What each frame of a stream says, comments left out."""
    *frames, rest = text.split("\n\n")
    assert rest == ""
    frames = [frame for frame in frames if not frame.startswith(":")]
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [frame.removeprefix("data: ") for frame in frames]


def text_of(frames: list[dict[str, Any]], index: int = 0) -> str:
    """What the chunks of one choice say."""
    chosen = [c for frame in frames for c in frame["choices"] if c["index"] == index]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in chosen)


def reasons_of(frames: list[dict[str, Any]], index: int = 0) -> list[str | None]:
    choices = [c for frame in frames for c in frame["choices"]]
    return [c["finish_reason"] for c in choices if c["index"] == index]


def message_of(body: dict[str, Any], index: int = 0) -> str:
    content: str = body["choices"][index]["message"]["content"]
    return content


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a refusal, which has OpenAI's one shape."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


def running() -> Iterator[Cases]:
    cases = Cases()
    with cases.lab:
        cases.start()
        yield cases
        cases.http.close()
