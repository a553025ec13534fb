"""Validation of requests: what is taken, what is refused, and what the refusal says."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from openai.types.chat import ChatCompletionStreamOptionsParam, completion_create_params
from pydantic import ValidationError

from services.gateway.invalid import explain
from services.gateway.schema import MAX_FIELDS, MAX_MESSAGES, ChatRequest, StreamOptions
from services.gateway.translate import to_generate
from services.gateway.unserved import REQUEST, STREAM_OPTIONS
from starsd.errors import ErrorBody
from starsd.protocol.events import Generate

USER = {"role": "user", "content": "hi"}


def generate(*messages: Any, **fields: Any) -> Generate:
    body = {"model": "tiny", "messages": list(messages) or [USER], **fields}
    return to_generate(ChatRequest.model_validate(body), "id-1")


def refusal(*messages: Any, **fields: Any) -> ErrorBody:
    with pytest.raises(ValidationError) as caught:
        generate(*messages, **fields)
    # FastAPI puts where the value came from in front of each location.
    return explain([{**error, "loc": ("body", *error["loc"])} for error in caught.value.errors()])


OPTIONAL = sorted(set(ChatRequest.model_fields) - {"messages", "model", "seed"})


@pytest.mark.parametrize("field", [*OPTIONAL, *sorted(REQUEST)])
def test_null_is_absent(field: str) -> None:
    assert generate(seed=1, **{field: None}) == generate(seed=1)


def test_missing_seed_is_drawn_anew() -> None:
    seeds = {generate(**fields).sampling.seed for fields in ({}, {"seed": None}, {})}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**64 for seed in seeds)


@pytest.mark.parametrize(
    ("seed", "sent"),
    [(0, 0), (5, 5), (2**63 - 1, 2**63 - 1), (-1, 2**64 - 1), (-(2**63), 2**63)],
)
def test_seed_is_any_int64(seed: int, sent: int) -> None:
    assert generate(seed=seed).sampling.seed == sent


def test_defaults_are_openais() -> None:
    request = generate()
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1, 1, 0, 0)
    assert (request.max_tokens, request.stop, request.id) == (None, (), "id-1")


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8}, 8),
        ({"max_tokens": 8, "max_completion_tokens": 8}, 8),
    ],
)
def test_both_names_of_the_limit(fields: dict[str, int], limit: int) -> None:
    assert generate(**fields).max_tokens == limit


def test_top_k_minus_one_is_off() -> None:
    assert generate(top_k=-1).sampling.top_k == 0
    assert generate(top_k=40).sampling.top_k == 40


@pytest.mark.parametrize(("stop", "sent"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop_is_text_or_list(stop: Any, sent: tuple[str, ...]) -> None:
    assert generate(stop=stop).stop == sent


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert generate({"role": "user", "content": parts}).messages == [
        {"role": "user", "content": "ab"}
    ]


def test_developer_is_read_as_system() -> None:
    assert generate({"role": "developer", "content": "x"}).messages[0]["role"] == "system"


@pytest.mark.parametrize("absent", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_assistant_may_lack_content(absent: dict[str, Any]) -> None:
    sent = generate(USER, {"role": "assistant", **absent}).messages[1]
    assert sent == {"role": "assistant", "content": ""}


def test_a_replayed_tool_call_turn_reaches_the_template() -> None:
    function = {"name": "f", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    # What the SDK's message.model_dump() has besides.
    dumped = {**turn, "refusal": None, "annotations": [], "audio": None, "function_call": None}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "4"}
    assert generate(USER, dumped, answer).messages[1:] == [{**turn, "content": ""}, answer]


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"max_tokens": 0}, "max_tokens", "max_tokens=0: Input should be greater than or equal"),
        ({"max_tokens": -1}, "max_tokens", "max_tokens=-1"),
        ({"max_tokens": 5.0}, "max_tokens", "valid integer"),
        ({"max_tokens": True}, "max_tokens", "valid integer"),
        ({"max_tokens": "5"}, "max_tokens", "valid integer"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "greater than or equal to 1"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "max_completion_tokens=6"),
        ({"temperature": 2.1}, "temperature", "less than or equal to 2"),
        ({"temperature": -0.1}, "temperature", "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature", "finite"),
        ({"temperature": "0.5"}, "temperature", "valid number"),
        ({"top_p": 0}, "top_p", "top_p=0: Input should be greater than 0"),
        ({"top_p": 1.01}, "top_p", "less than or equal to 1"),
        ({"top_k": -2}, "top_k", "top_k=-2"),
        ({"min_p": 1.5}, "min_p", "min_p=1.5"),
        ({"seed": 2**63}, "seed", "seed=9223372036854775808"),
        ({"stop": ""}, "stop[0]", "stop[0]=''"),
        ({"stop": ["a", ""]}, "stop[1]", "at least 1 char"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"stop": 5}, "stop", "stop=5"),
        ({"stream": 1}, "stream", "boolean"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"n": 0}, "n", "n=0"),
        ({"metadata": {"a": 1}}, "metadata.a", "valid string"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": None}, "messages", "required"),
        ({"messages": "hi"}, "messages", "list"),
        ({"model": 5}, "model", "model=5"),
    ],
)
def test_wrong_values_are_named(fields: dict[str, Any], param: str, said: str) -> None:
    error = refusal(**fields)
    assert (error.status, error.code, error.param) == (400, "invalid_value", param)
    assert said in error.message
    assert error.message.startswith(param)


@pytest.mark.parametrize(
    ("message", "param", "said"),
    [
        ({"role": "user"}, "messages[0].content", "a user message needs text"),
        ({"role": "user", "content": None}, "messages[0].content", "needs text"),
        ({"role": "user", "content": 5}, "messages[0].content", "valid string"),
        ({"role": "user", "content": "\ud800"}, "messages[0].content", "surrogate"),
        ({"role": "wizard", "content": "x"}, "messages[0].role", "'wizard'"),
        ({"content": "x"}, "messages[0].role", "required"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id", "tool message"),
        ({**USER, "tool_call_id": "x"}, "messages[0].tool_call_id", "only there"),
        ({**USER, "tool_calls": []}, "messages[0].tool_calls", "assistant"),
        ("hi", "messages[0]", "JSON object"),
    ],
)
def test_wrong_messages_are_named(message: Any, param: str, said: str) -> None:
    error = refusal(message)
    assert (error.status, error.code, error.param) == (400, "invalid_value", param)
    assert said in error.message


def test_an_image_is_refused_by_name() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    error = refusal({"role": "user", "content": parts})
    assert error.param == "messages[0].content[1].type"
    assert "'image_url'" in error.message
    assert "text" in error.message


ASKING = [
    {"n": 2},
    {"logprobs": True},
    {"top_logprobs": 3},
    {"tools": [{"type": "function"}]},
    {"tool_choice": "required"},
    {"response_format": {"type": "json_object"}},
    {"presence_penalty": 0.5},
    {"presence_penalty": False},
    {"frequency_penalty": -0.5},
    {"logit_bias": {"99999999": 5}},
    {"store": True},
    {"reasoning_effort": "high"},
    {"prompt_cache_key": "\ud800"},
]


@pytest.mark.parametrize("fields", ASKING, ids=repr)
def test_unserved_fields_are_refused_by_name(fields: dict[str, Any]) -> None:
    error = refusal(**fields)
    (name,) = fields
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert error.message.startswith(f"{name}=")


NEUTRAL = [(name, value) for name, values in REQUEST.items() for value in values]


@pytest.mark.parametrize(("name", "value"), NEUTRAL, ids=repr)
def test_unserved_fields_may_ask_for_nothing(name: str, value: Any) -> None:
    assert generate(seed=1, **{name: value}) == generate(seed=1)


@pytest.mark.parametrize("value", [None, 1, "x"])
def test_unknown_fields_are_refused(value: Any) -> None:
    error = refusal(**{"temprature": value})
    assert (error.code, error.param) == ("unsupported_parameter", "temprature")
    assert refusal({**USER, "colour": 1}).param == "messages[0].colour"
    assert refusal(stream=True, stream_options={"often": 1}).param == "stream_options.often"


def test_long_values_are_cut_in_messages() -> None:
    assert len(refusal(temperature="x" * 10_000).message) < 400
    assert len(refusal(**{"x" * 10_000: 1}).message) < 400


def test_what_would_keep_the_gateway_busy_is_refused_at_once() -> None:
    """One fault is all that is told, so the rest need not be found."""
    with pytest.raises(ValidationError) as caught:
        generate(*[{"role": "x"}] * MAX_MESSAGES)
    assert caught.value.error_count() == 1
    with pytest.raises(ValidationError) as caught:
        generate(**{f"field{number}": 1 for number in range(10 * MAX_FIELDS)})
    assert caught.value.error_count() == 1
    assert refusal(*[USER] * (MAX_MESSAGES + 1)).param == "messages"


def test_values_too_deep_to_show_are_refused_all_the_same() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    error = refusal(tools=deep)
    assert (error.param, error.message[:9]) == ("tools", "tools=...")


def test_every_field_of_the_sdk_is_known() -> None:
    params = get_type_hints(completion_create_params.CompletionCreateParamsBase)
    assert set(params) - set(ChatRequest.model_fields) - set(REQUEST) == set()
    options = get_type_hints(ChatCompletionStreamOptionsParam)
    assert set(options) == {*StreamOptions.model_fields, *STREAM_OPTIONS}
