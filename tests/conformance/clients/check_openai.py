"""The official Python client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.conformance.clients.asked import (
    BASE,
    ECHO,
    KEY,
    MODEL,
    PARAMETERS,
    TEXT,
    THING,
    THING_JSON,
    call_of,
)

TOOLS: Any = [{"type": "function", "function": {"name": "measure", "parameters": PARAMETERS}}]


class Thing(BaseModel):
    name: str
    size: int


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0) as client:
        yield client


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": ECHO, "messages": [{"role": "user", "content": text}], **fields}


def test_plain(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**asked(TEXT))
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"


def test_stream(client: openai.OpenAI) -> None:
    chunks = [*client.chat.completions.create(**asked(TEXT, stream=True))]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**asked(TEXT)) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == TEXT


async def test_async_stream() -> None:
    async with openai.AsyncOpenAI(base_url=BASE, api_key=KEY) as client:
        stream = await client.chat.completions.create(**asked(TEXT, stream=True))
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == TEXT


def test_turns(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "developer", "content": "Repeat."}]
    for text in ("one", "two", "three"):
        messages.append({"role": "user", "content": text})
        answer = client.chat.completions.create(model=ECHO, messages=messages)
        messages.append(answer.choices[0].message)
        assert answer.choices[0].message.content == text


def test_usage(client: openai.OpenAI) -> None:
    usage = client.chat.completions.create(**asked("abc")).usage
    assert usage is not None
    assert usage.completion_tokens == len("abc") + 1
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_usage_of_a_stream(client: openai.OpenAI) -> None:
    options = {"include_usage": True}
    *_, last = client.chat.completions.create(**asked("abc", stream=True, stream_options=options))
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 4


def test_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**{**asked(TEXT), "model": "none"})
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_value_says_which(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature=9") as caught:
        client.chat.completions.create(**asked(TEXT, temperature=9, stream=stream))
    assert caught.value.param == "temperature"


def test_tools_and_their_results(client: openai.OpenAI) -> None:
    request = asked(call_of("measure"), tools=TOOLS)
    answer = client.chat.completions.create(**request)
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == THING
    result = {"role": "tool", "tool_call_id": call.id, "content": "42"}
    request["messages"] += [answer.choices[0].message, result]
    assert "42" in (client.chat.completions.create(**request).choices[0].message.content or "")


def test_tools_of_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**asked(call_of("measure"), tools=TOOLS)) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("measure", THING)


def test_what_the_helpers_return_can_be_sent_back(client: openai.OpenAI) -> None:
    request = asked(call_of("Thing"), tools=[openai.pydantic_function_tool(Thing)])
    with client.chat.completions.stream(**request) as stream:
        message = stream.get_final_completion().choices[0].message
    (call,) = message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Thing)
    result = {"role": "tool", "tool_call_id": call.id, "content": THING_JSON}
    request["messages"] += [message, result]
    assert "Vega" in (client.chat.completions.create(**request).choices[0].message.content or "")
    request = asked(THING_JSON)
    message = client.chat.completions.parse(**request, response_format=Thing).choices[0].message
    request["messages"] += [message, {"role": "user", "content": "more"}]
    assert client.chat.completions.create(**request).choices[0].message.content == "more"


def test_a_required_tool_of_a_real_model(client: openai.OpenAI) -> None:
    request = asked("Measure Vega, of size 3.", tools=TOOLS, tool_choice="required", max_tokens=99)
    answer = client.chat.completions.create(**{**request, "model": MODEL}, temperature=0)
    assert {call.function.name for call in answer.choices[0].message.tool_calls or ()} == {
        "measure"
    }


@pytest.mark.parametrize("model", [ECHO, MODEL])
def test_structured_output(client: openai.OpenAI, model: str) -> None:
    request = {**asked(THING_JSON, max_tokens=99, temperature=0), "model": model}
    answer = client.chat.completions.parse(**request, response_format=Thing)
    assert isinstance(answer.choices[0].message.parsed, Thing)


def test_completions(client: openai.OpenAI) -> None:
    request: Any = {"model": MODEL, "prompt": ["Once upon", "In the"], "max_tokens": 8, "seed": 1}
    whole = [choice.text for choice in client.completions.create(**request).choices]
    streamed = ["", ""]
    for chunk in client.completions.create(**request, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert whole == streamed


def test_log_probabilities(client: openai.OpenAI) -> None:
    request = asked(TEXT, logprobs=True, top_logprobs=3, max_tokens=5)
    told = client.chat.completions.create(**request).choices[0].logprobs
    assert told is not None
    assert [len(token.top_logprobs) for token in told.content or ()] == [3] * 5


def test_models(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} >= {ECHO, MODEL}
    assert client.models.retrieve(ECHO).id == ECHO
