"""Structured output and tools through the official client, a whole star of real processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from tests.livestar import MODEL, LiveStar

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "identifier": {"type": "integer", "minimum": 0, "maximum": 999},
        "status": {"enum": ["waiting", "working", "finished"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
    },
    "required": ["identifier", "status", "tags"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": "time"}},
]
ROME = '{"city": "Rome \N{SNOWMAN}"}'
CALLS = (
    f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)
BOTH = [("weather", ROME), ("time", "{}")]


@pytest.fixture(scope="module")
def star() -> Iterator[LiveStar]:
    """Of models that say anything."""
    with LiveStar() as star:
        star.start_all()
        star.wait_whole()
        yield star


@pytest.fixture(scope="module")
def echo() -> Iterator[LiveStar]:
    """Of models that say what the user said: a hub is always right."""
    echoes = {"scripted": "tests.scripted:EchoModel"}
    with LiveStar(target=echoes, hub=echoes) as star:
        star.start_all()
        star.wait_whole()
        yield star


def body(text: str = "hi", **fields: Any) -> dict[str, Any]:
    given = {"seed": 3, "temperature": 0.8, "max_tokens": 300, **fields}
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **given}


def ask(star: LiveStar, gateway: str = "gateway", **fields: Any) -> ChatCompletion:
    with star.client(gateway) as client:
        answer: ChatCompletion = client.chat.completions.create(**fields)
        return answer


def listen(star: LiveStar, **fields: Any) -> list[ChatCompletionChunk]:
    with star.client() as client:
        return [*client.chat.completions.create(**fields, stream=True)]


def content(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def called(answer: ChatCompletion) -> list[tuple[str, str]]:
    calls: Any = answer.choices[0].message.tool_calls or []
    return [(call.function.name, call.function.arguments) for call in calls]


def heard(chunks: list[ChatCompletionChunk]) -> tuple[str, list[list[str]], str | None]:
    """Text, name and arguments of each call, and why it ended."""
    text, reason = "", None
    calls: list[list[str]] = []
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for call in choice.delta.tool_calls or ():
            assert call.function is not None
            if call.id:
                assert (call.index, call.type) == (len(calls), "function")
                calls.append([call.function.name or "", ""])
            calls[call.index][1] += call.function.arguments or ""
    return text, calls, reason


# -- structured output ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_matches_its_schema_and_is_plain_decodings(
    star: LiveStar, seed: int, temperature: float
) -> None:
    asked = body(f"question {seed}", seed=seed, temperature=temperature, response_format=FORMAT)
    answer, plain = ask(star, **asked), ask(star, "reference", **asked)
    jsonschema.validate(json.loads(content(answer)), SCHEMA)
    assert content(answer) == content(plain)
    assert answer.choices[0].finish_reason == "stop"
    text, _, reason = heard(listen(star, **asked))
    assert (text, reason) == (content(answer), "stop")
    starsd = (answer.model_extra or {})["starsd"]
    assert starsd["accepted"] > 5


class Thing(BaseModel):
    name: str
    size: int


def test_the_clients_own_models(star: LiveStar) -> None:
    with star.client() as client:
        answer = client.chat.completions.parse(**body(), response_format=Thing)
    assert isinstance(answer.choices[0].message.parsed, Thing)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"response_format": {"type": "json_object"}}, r"\{.*\}"),
        ({"guided_regex": "[0-9]{3}-[a-f]{2}"}, "[0-9]{3}-[a-f]{2}"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"structured_outputs": {"choice": ["\N{SNOWMAN}", "sun"]}}, "\N{SNOWMAN}|sun"),
        ({"guided_grammar": 'root ::= "a" [0-9]+ "."'}, r"a[0-9]+\."),
    ],
    ids=repr,
)
def test_other_shapes(star: LiveStar, fields: dict[str, Any], pattern: str) -> None:
    answer = ask(star, **body(extra_body=fields))
    if answer.choices[0].finish_reason == "stop":
        assert re.fullmatch(pattern, content(answer), re.DOTALL)
    assert content(answer)


def test_completions_have_shapes_too(star: LiveStar) -> None:
    with star.client() as client:
        answer = client.completions.create(
            model=MODEL, prompt="x", seed=1, extra_body={"guided_regex": "[ab]{4}"}
        )
    assert re.fullmatch("[ab]{4}", answer.choices[0].text)


def test_several_choices_each_match(star: LiveStar) -> None:
    answer = ask(star, **body(n=3, response_format=FORMAT))
    for choice in answer.choices:
        jsonschema.validate(json.loads(choice.message.content or ""), SCHEMA)


def test_e10_log_probabilities_are_the_models_own_under_a_grammar(star: LiveStar) -> None:
    asked = body(response_format=FORMAT, logprobs=True)
    found = []
    for gateway in ("gateway", "reference"):
        told = ask(star, gateway, **asked).choices[0].logprobs
        assert told is not None
        found.append([one.logprob for one in told.content or ()])
    assert found[0] == pytest.approx(found[1], abs=1e-4)
    assert min(found[0]) < -1.0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_regex": "a" * 9000}, "guided_regex"),
        ({"guided_json": {"type": "object", "not": {}}}, "guided_json"),
        ({"guided_json": {"$ref": "http://127.0.0.1:9/x"}}, "guided_json"),
        (
            {"guided_json": {"type": "object", "properties": {f"p{i}": {} for i in range(600)}}},
            "guided_json",
        ),
        (
            {
                "tool_choice": "required",
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}
                ],
            },
            "tools",
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_hostile_shapes_are_refused_before_the_stream(
    star: LiveStar, fields: dict[str, Any], param: str, stream: bool
) -> None:
    with star.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**body(stream=stream, extra_body=fields))
    assert (caught.value.param, caught.value.code) == (param, "invalid_grammar")


@pytest.mark.parametrize("stream", [True, False])
def test_a_grammar_that_grows_too_complex_ends_its_answer_alone(
    star: LiveStar, stream: bool
) -> None:
    """It compiled; in the middle of the answer an error is a frame of the stream."""
    asked = body(stream=stream, extra_body={"guided_regex": "((((a{0,99}){0,99}){0,99}){0,99})"})
    with star.client() as client, pytest.raises(openai.APIError, match="cannot go on") as caught:
        for _ in client.chat.completions.create(**asked):
            pass
    assert caught.value.code == "invalid_grammar"
    assert content(ask(star, **body(max_tokens=5)))


# -- tools ---------------------------------------------------------------------------------------


def test_calls_of_a_whole_answer(echo: LiveStar) -> None:
    answer = ask(echo, **body("Look.\n" + CALLS, tools=TOOLS))
    assert called(answer) == BOTH
    assert content(answer) == "Look."
    assert answer.choices[0].finish_reason == "tool_calls"
    ids = [call.id for call in answer.choices[0].message.tool_calls or ()]
    assert len({*ids}) == 2


@pytest.mark.parametrize("speculation", ["auto", "off"])
def test_e24_calls_of_a_stream_whatever_its_chunks(echo: LiveStar, speculation: str) -> None:
    """With a hub that is always right several tokens come at once."""
    extra = {"starsd": {"speculation": speculation}}
    chunks = listen(echo, **body("Look.\n" + CALLS, tools=TOOLS, extra_body=extra))
    text, calls, reason = heard(chunks)
    assert (text, reason) == ("Look.", "tool_calls")
    assert [tuple(call) for call in calls] == BOTH
    parts = [c.choices[0].delta.tool_calls for c in chunks if c.choices]
    first = next(part for part in parts if part)
    assert first[0].function is not None
    assert (first[0].function.name, first[0].function.arguments) == ("weather", "")


def test_a_turn_with_calls_and_results_can_be_sent_back(echo: LiveStar) -> None:
    asked = body(CALLS, tools=TOOLS)
    message = ask(echo, **asked).choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"result {place}"}
        for place, call in enumerate(message.tool_calls or ())
    ]
    messages = [*asked["messages"], message.model_dump(exclude_none=True), *results]
    answer = ask(echo, **{**asked, "messages": messages})
    assert content(answer) == "<tool_response>\nresult 1\n</tool_response>"
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("cut", [25, 50, 60])
def test_a_call_cut_off_is_text_and_nothing_is_lost(echo: LiveStar, cut: int) -> None:
    asked = body(CALLS, tools=TOOLS, max_tokens=cut)
    answer = ask(echo, **asked)
    assert content(answer) == CALLS.encode()[:cut].decode(errors="ignore")
    assert called(answer) == []
    assert answer.choices[0].finish_reason == "length"
    text, calls, reason = heard(listen(echo, **asked))
    assert reason == "length"
    told = "".join(arguments for _, arguments in calls)
    assert content(answer).endswith(told + text)


def test_without_parallel_calls_the_first_ends_the_answer(echo: LiveStar) -> None:
    answer = ask(echo, **body(CALLS, tools=TOOLS, parallel_tool_calls=False))
    assert called(answer) == BOTH[:1]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(CALLS[: CALLS.index("}}") + 2].encode())


def test_no_tools_are_called_where_none_may_be(echo: LiveStar) -> None:
    answer = ask(echo, **body(CALLS, tools=TOOLS, tool_choice="none"))
    assert content(answer) == CALLS
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "time"}}], ids=repr
)
def test_forced_calls_of_a_model_that_says_anything(
    star: LiveStar, temperature: float, choice: Any
) -> None:
    place = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}}
    strict = {**place, "required": ["city"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": strict}}, TOOLS[1]]
    asked = body(
        tools=tools, tool_choice=choice, temperature=temperature, parallel_tool_calls=False
    )
    answer, plain = ask(star, **asked), ask(star, "reference", **asked)
    ((name, arguments),) = called(answer)
    jsonschema.validate(json.loads(arguments), strict if name == "weather" else {})
    assert name == "time" or choice == "required"
    assert called(plain) == called(answer)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert content(answer) == ""
    _, calls, reason = heard(listen(star, **asked))
    assert [tuple(call) for call in calls] == called(answer)
    assert reason == "tool_calls"
