"""Validation of requests: what is taken, what is refused, and what the refusal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from openai.types.chat import (
    ChatCompletionStreamOptionsParam,
    ParsedChatCompletionMessage,
    ParsedFunction,
    ParsedFunctionToolCall,
    completion_create_params,
)
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from openai.types.completion_create_params import CompletionCreateParamsBase
from pydantic import BaseModel, ValidationError

from services.gateway.body import MAX_FIELDS
from services.gateway.invalid import explain
from services.gateway.messages import FunctionCall, Message, ToolCall
from services.gateway.options import StreamOptions
from services.gateway.schema import MAX_MESSAGES, MAX_PROMPTS, ChatRequest, CompletionRequest
from services.gateway.translate import chat_asked, completion_asked
from services.gateway.unserved import CHAT, COMPLETION, MESSAGE, STREAM_OPTIONS
from starsd.errors import ErrorBody
from starsd.protocol.events import Generate
from starsd.protocol.sampling import MAX_BIAS, Penalties

USER = {"role": "user", "content": "hi"}


def generate(*messages: Any, **fields: Any) -> Generate:
    body = {"model": "tiny", "messages": list(messages) or [USER], **fields}
    return chat_asked(ChatRequest.model_validate(body), "id-1").requests[0]


def continuations(**fields: Any) -> list[Generate]:
    body = {"model": "tiny", **fields}
    return [*completion_asked(CompletionRequest.model_validate(body), "id-1").requests]


def refusal(*messages: Any, **fields: Any) -> ErrorBody:
    return refused(lambda: generate(*messages, **fields))


def refused(ask: Callable[[], object]) -> ErrorBody:
    with pytest.raises(ValidationError) as caught:
        ask()
    # FastAPI puts where the value came from in front of each location.
    return explain([{**error, "loc": ("body", *error["loc"])} for error in caught.value.errors()])


OPTIONAL = sorted(set(ChatRequest.model_fields) - {"messages", "model", "seed"})


@pytest.mark.parametrize("field", [*OPTIONAL, *sorted(CHAT)])
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
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "annotations": None}]
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
    # What messages of the SDK and of LiteLLM have besides, and calls put together from a stream.
    again = {**call, "index": 0, "function": {**function, "parsed_arguments": {"a": 1}}}
    dumped: dict[str, Any] = {**turn, "tool_calls": [again], "parsed": {"a": 1}, "refusal": None}
    dumped |= {"annotations": [], "audio": None, "function_call": None}
    dumped |= {"provider_specific_fields": {"refusal": None}}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "4"}
    assert generate(USER, dumped, answer).messages[1:] == [{**turn, "content": ""}, answer]


def test_what_an_assistant_thought_reaches_the_template() -> None:
    turn = {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    assert generate(USER, turn).messages[1] == turn


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Message, ParsedChatCompletionMessage),
        (ToolCall, ParsedFunctionToolCall),
        (ToolCall, ChoiceDeltaToolCall),
        (FunctionCall, ParsedFunction),
    ],
)
def test_every_field_of_the_sdks_answers_can_be_sent_back(
    ours: type[BaseModel], theirs: type[BaseModel]
) -> None:
    assert set(theirs.model_fields) <= {*ours.model_fields, *MESSAGE}


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
        ({"n": 129}, "n", "less than or equal to 128"),
        ({"metadata": {"a": 1}}, "metadata.a", "valid string"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a", "at most 512"),
        ({"service_tier": "gold"}, "service_tier", "'priority'"),
        ({"presence_penalty": 2.5}, "presence_penalty", "less than or equal to 2"),
        ({"presence_penalty": False}, "presence_penalty", "valid number"),
        ({"frequency_penalty": -2.5}, "frequency_penalty", "greater than or equal to -2"),
        ({"repetition_penalty": 0}, "repetition_penalty", "greater than 0"),
        ({"logit_bias": {"5": 1e39}}, "logit_bias.5", "less than or equal to 100"),
        ({"logit_bias": {"5": "x"}}, "logit_bias.5", "valid number"),
        ({"logit_bias": {"AI": 1}}, "logit_bias", "logit_bias='AI': its keys are token ids"),
        ({"logit_bias": {"05": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": dict.fromkeys(map(str, range(MAX_BIAS + 1)), 1)}, "logit_bias", "at most"),
        ({"logprobs": 3}, "logprobs", "boolean"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", "greater than or equal to 0"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs: true"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "greater than or equal to 0"),
        ({"starsd": {"speculation": "on"}}, "starsd.speculation", "'on': want \"auto\""),
        ({"starsd": {"speculation": 65}}, "starsd.speculation", "less than or equal to 64"),
        ({"starsd": {"speculation": True}}, "starsd.speculation", "valid integer"),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
            "include_usage: true",
        ),
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
        ({**USER, "reasoning_content": "x"}, "messages[0].reasoning_content", "assistant"),
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
    {"best_of": 2},
    {"echo": True},
    {"functions": [{"name": "f"}]},
    {"min_tokens": 3},
    {"store": True},
    {"reasoning_effort": "high"},
    {"prompt_cache_options": "\ud800"},
]


@pytest.mark.parametrize("fields", ASKING, ids=repr)
def test_unserved_fields_are_refused_by_name(fields: dict[str, Any]) -> None:
    error = refusal(**fields)
    (name,) = fields
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert error.message.startswith(f"{name}=")


NEUTRAL = [(name, value) for name, values in CHAT.items() for value in values]


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
    error = refusal(store=deep)
    assert (error.param, error.message[:9]) == ("store", "store=...")


@pytest.mark.parametrize("field", ["guided_json", "tools"])
def test_schemas_too_deep_to_read_are_refused(field: str) -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    tools = [{"type": "function", "function": {"name": "f", "parameters": deep}}]
    error = refusal(**{field: deep if field == "guided_json" else tools})
    assert error.status == 400
    assert (error.param or "").startswith(field)


def test_every_field_of_the_sdk_is_known() -> None:
    params = get_type_hints(completion_create_params.CompletionCreateParamsBase)
    assert set(params) - set(ChatRequest.model_fields) - set(CHAT) == set()
    options = get_type_hints(ChatCompletionStreamOptionsParam)
    assert set(options) <= {*StreamOptions.model_fields, *STREAM_OPTIONS}
    params = get_type_hints(CompletionCreateParamsBase)
    assert set(params) - set(CompletionRequest.model_fields) - set(COMPLETION) == set()


def test_what_decides_tokens_reaches_the_target() -> None:
    request = generate(
        frequency_penalty=0.5, presence_penalty=-1, repetition_penalty=1.2, logit_bias={"7": -100}
    )
    assert request.sampling.penalties == Penalties(0.5, -1, 1.2)
    assert request.sampling.bias == {7: -100}
    neutral = generate(frequency_penalty=0, repetition_penalty=1, logit_bias={})
    assert (neutral.sampling.penalties, neutral.sampling.bias) == (None, None)


def test_what_ends_an_answer_reaches_the_target() -> None:
    request = generate(n=3, stop_token_ids=[5, 6], ignore_eos=True)
    assert (request.n, request.stop_token_ids, request.ignore_eos) == (3, (5, 6), True)


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
        ({"top_logprobs": 0}, None),
    ],
)
def test_logprobs_by_their_count(fields: dict[str, Any], count: int | None) -> None:
    assert generate(**fields).logprobs == count


@pytest.mark.parametrize(
    ("asked", "depth"), [("off", 0), ("auto", None), (None, None), (0, 0), (5, 5), (64, 64)]
)
def test_speculation_by_its_depth(asked: Any, depth: int | None) -> None:
    assert generate(starsd={"speculation": asked}).draft_depth == depth
    assert generate(starsd=None).draft_depth is None


def test_hints_without_effect_are_taken() -> None:
    hints = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "metadata": {"a": "b"}}
    assert generate(seed=1, **hints, service_tier="flex") == generate(seed=1)


# -- completions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ("", [""]),
    ],
)
def test_prompts_of_every_kind(prompt: Any, sent: list[Any]) -> None:
    asked = continuations(prompt=prompt, seed=3, n=2)
    assert [one.prompt for one in asked] == sent
    assert all(one.sampling.seed == 3 and one.n == 2 and not one.messages for one in asked)


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({}, "prompt", "required"),
        ({"prompt": None}, "prompt", "required"),
        ({"prompt": []}, "prompt", "at least 1"),
        ({"prompt": ["a"] * (MAX_PROMPTS + 1)}, "prompt", "at most 128"),
        ({"prompt": [[-1]]}, "prompt[0][0]", "=-1: want a token id"),
        ({"prompt": [[1, "a"]]}, "prompt[0][1]", "='a': want a token id"),
        ({"prompt": [[]]}, "prompt[0]", "=[]: want text, or a list of token ids"),
        ({"prompt": ["a", 1]}, "prompt[1]", "=1: want text, or a list of token ids"),
        ({"prompt": [True]}, "prompt[0]", "=True: want text"),
        ({"prompt": "\ud800"}, "prompt[0]", "surrogate"),
        ({"prompt": {"a": 1}}, "prompt", "list"),
        ({"prompt": "a", "best_of": 2}, "best_of", "send n, which is 1"),
        ({"prompt": "a", "echo": True}, "echo", "not served"),
        ({"prompt": "a", "suffix": "b"}, "suffix", "not served"),
        ({"prompt": "a", "logprobs": 21}, "logprobs", "less than or equal to 20"),
        ({"prompt": "a", "messages": []}, "messages", "unknown field"),
    ],
)
def test_wrong_completions_are_named(fields: dict[str, Any], param: str, said: str) -> None:
    error = refused(lambda: continuations(**fields))
    assert (error.status, error.param) == (400, param)
    assert said in error.message


def test_completions_have_openais_defaults() -> None:
    (one,) = continuations(prompt="a", best_of=1, suffix="", echo=False)
    assert (one.max_tokens, one.logprobs) == (16, None)
    (null,) = continuations(prompt="a", max_tokens=None)
    assert null.max_tokens == 16
