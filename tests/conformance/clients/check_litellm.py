"""LiteLLM, as a client and as a proxy in front of the gateway."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import litellm
import openai
import pytest

from tests.conformance.clients.asked import (
    BASE,
    ECHO,
    KEY,
    PARAMETERS,
    TEXT,
    THING,
    THING_JSON,
    call_of,
)

TOOLS: Any = [{"type": "function", "function": {"name": "measure", "parameters": PARAMETERS}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "thing", "schema": PARAMETERS}}
STARTING_S = 90.0


def ask(text: str, model: str = ECHO, **fields: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    where = {"api_base": BASE, "api_key": KEY, "num_retries": 0}
    return litellm.completion(model=f"openai/{model}", messages=messages, **where, **fields)


def test_plain_and_usage() -> None:
    answer = ask(TEXT)
    assert answer.choices[0].message.content == TEXT
    assert answer.usage.completion_tokens == len(TEXT.encode()) + 1


def test_stream_and_usage() -> None:
    chunks = [*ask(TEXT, stream=True, stream_options={"include_usage": True})]
    texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == TEXT
    assert chunks[-1].usage.completion_tokens == len(TEXT.encode()) + 1


@pytest.mark.parametrize("stream", [False, True])
def test_tools(stream: bool) -> None:
    answer = ask(call_of("measure"), tools=TOOLS, stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder([*answer])
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("measure", THING)


@pytest.mark.parametrize("said", [TEXT, "<think>hm</think>fine", call_of("measure")])
def test_an_answer_can_be_sent_back(said: str) -> None:
    """With what LiteLLM adds: thoughts taken out of the text, fields of its own."""
    where: Any = {"api_base": BASE, "api_key": KEY, "num_retries": 0, "tools": TOOLS}
    messages: list[Any] = [{"role": "user", "content": said}]
    message = litellm.completion(f"openai/{ECHO}", messages, **where).choices[0].message
    calls = message.tool_calls or []
    messages += [message, *({"role": "tool", "tool_call_id": c.id, "content": "42"} for c in calls)]
    messages.append({"role": "user", "content": "again"})
    again = litellm.completion(f"openai/{ECHO}", messages, **where).choices[0].message
    assert again.content == "again"


def test_structured_output() -> None:
    answer = ask(THING_JSON, response_format=SCHEMA)
    assert json.loads(answer.choices[0].message.content) == THING


def test_errors() -> None:
    with pytest.raises(litellm.NotFoundError, match="none"):
        ask(TEXT, "none")
    with pytest.raises(litellm.BadRequestError, match="temperature=9"):
        ask(TEXT, temperature=9)


# -- a proxy in front ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("proxy")
    params = {"model": f"openai/{ECHO}", "api_base": BASE, "api_key": KEY}
    config = folder / "config.json"  # JSON is YAML
    config.write_text(json.dumps({"model_list": [{"model_name": ECHO, "litellm_params": params}]}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = (folder / "log").open("wb")
    command = [str(Path(sys.executable).parent / "litellm"), "--config", str(config)]
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    key = f"sk-{secrets.token_hex(16)}"
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=log,
        stderr=log,
        cwd=folder,
        env={
            **os.environ,
            "LITELLM_MASTER_KEY": key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "true",  # else it is fetched
        },
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "log")
        yield openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=60
        )
    finally:
        process.kill()
        process.wait()
        log.close()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTING_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            if httpx.get(url, timeout=2).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.2)


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": ECHO, "messages": [{"role": "user", "content": text}], **fields}


def test_proxy_plain_and_usage(proxy: openai.OpenAI) -> None:
    answer = proxy.chat.completions.create(**asked(TEXT))
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(TEXT.encode()) + 1


def test_proxy_stream(proxy: openai.OpenAI) -> None:
    chunks = [*proxy.chat.completions.create(**asked(TEXT, stream=True))]
    texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == TEXT


def test_proxy_tools_of_a_stream(proxy: openai.OpenAI) -> None:
    with proxy.chat.completions.stream(**asked(call_of("measure"), tools=TOOLS)) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == THING


def test_proxy_errors(proxy: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature=9"):
        proxy.chat.completions.create(**asked(TEXT, temperature=9))
