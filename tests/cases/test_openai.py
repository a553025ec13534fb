"""The official client, unchanged, with speculation on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tests.cases.star import DEADLINE_S, ECHO, HASH, Cases, error_of

HI: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hi there"}]
SEEDED: dict[str, Any] = {"temperature": 0.9, "seed": 7, "max_tokens": 12}


@pytest.fixture
def client(cases: Cases) -> Iterator[openai.OpenAI]:
    with cases.openai() as client:
        yield client


def test_everything_that_shapes_an_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=HASH,
        messages=HI,
        n=2,
        logprobs=True,
        top_logprobs=2,
        top_p=0.9,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        logit_bias={"65": 2},
        stop=["###"],
        user="someone",
        metadata={"a": "b"},
        service_tier="auto",
        extra_body={
            "top_k": 50,
            "min_p": 0.01,
            "repetition_penalty": 1.1,
            "starsd": {"speculation": 4},
        },
        **SEEDED,
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.service_tier == "default"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        tokens = choice.logprobs.content
        text = b"".join(bytes(token.bytes or ()) for token in tokens).decode(errors="replace")
        assert text == choice.message.content
        assert all(len(token.top_logprobs) == 2 for token in tokens)
    extension: dict[str, Any] = (answer.model_extra or {})["starsd"]
    assert extension["target"] == HASH


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": HASH, "messages": HI, "logprobs": True, "n": 2, **SEEDED}
    whole = client.chat.completions.create(**asked)
    options: Any = {"include_usage": True}
    texts, reasons, logprobs = ["", ""], ["", ""], [0, 0]
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options=options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] += choice.finish_reason or ""
            if choice.logprobs:
                logprobs[choice.index] += len(choice.logprobs.content or ())
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == ["length", "length"]
    assert logprobs == [12, 12]
    assert chunk.usage is not None
    assert whole.usage is not None
    assert chunk.usage.completion_tokens == whole.usage.completion_tokens


def test_completions_of_text_ids_and_lists(client: openai.OpenAI) -> None:
    def texts(prompt: Any, **fields: Any) -> list[str]:
        answer = client.completions.create(model=HASH, prompt=prompt, **SEEDED, **fields)
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
        return [choice.text for choice in answer.choices]

    (one,) = texts("abc")
    assert texts([97, 98, 99]) == [one]
    assert texts(["abc", "xyz"])[0] == one
    assert texts([[97, 98, 99], [120, 121, 122]]) == texts(["abc", "xyz"])
    several = texts(["abc", "xyz"], n=2)
    assert [several[0], several[2]] == texts(["abc", "xyz"])
    assert len(set(several)) == 4


def test_completions_stream_with_logprobs(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": HASH, "prompt": ["abc", "xyz"], "logprobs": 2, **SEEDED}
    whole = client.completions.create(**asked)
    texts, offsets = ["", ""], [list[int](), list[int]()]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.logprobs:
                offsets[choice.index] += choice.logprobs.text_offset or ()
    assert texts == [choice.text for choice in whole.choices]
    for choice in whole.choices:
        assert choice.logprobs is not None
        assert offsets[choice.index] == choice.logprobs.text_offset
        assert len(choice.logprobs.token_logprobs or ()) == 12
        told = zip(choice.logprobs.tokens or (), choice.logprobs.top_logprobs or (), strict=True)
        assert all(token in top and len(top) <= 3 for token, top in told)
    assert whole.object == "text_completion"
    assert whole.id.startswith("cmpl-")


def test_what_is_not_served_is_refused_by_name(client: openai.OpenAI) -> None:
    refused: list[dict[str, Any]] = [{"echo": True}, {"suffix": "x"}, {"best_of": 3}]
    for fields in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model=HASH, prompt="x", **fields)
        assert caught.value.param == next(iter(fields))
        assert caught.value.code == "unsupported_parameter"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="none", prompt="x")


def test_models_and_their_aliases(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} >= {ECHO, HASH, "parrot"}
    assert client.models.retrieve("parrot").id == "parrot"
    answer = client.chat.completions.create(model="parrot", messages=HI)
    assert (answer.model, answer.choices[0].message.content) == (ECHO, "hi there")


async def test_the_async_client(cases: Cases) -> None:
    url = f"{cases.gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=DEADLINE_S) as client:
        stream = await client.chat.completions.create(model=ECHO, messages=HI, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == "hi there"


# -- vLLM's routes -------------------------------------------------------------------------------


def test_tokenize_and_back(cases: Cases) -> None:
    asked = {"model": HASH, "prompt": "hé", "return_token_strs": True}
    found = cases.post(asked, "/tokenize").json()
    assert found == {
        "count": 3,
        "max_model_len": 512,
        "tokens": [104, 195, 169],
        "token_strs": ["h", "\ufffd", "\ufffd"],
    }
    back = cases.post({"model": HASH, "tokens": found["tokens"]}, "/detokenize")
    assert back.json() == {"prompt": "hé"}
    chat = {"model": HASH, "messages": HI}
    with_prompt = cases.post(chat, "/tokenize").json()
    without = cases.post({**chat, "add_generation_prompt": False}, "/tokenize").json()
    assert with_prompt["tokens"][:-1] == without["tokens"]
    assert with_prompt["token_strs"] is None


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": HI}, "prompt"),
        ("/detokenize", {"tokens": [9999]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_bad_requests_to_tokenize(
    cases: Cases, path: str, body: dict[str, Any], param: str
) -> None:
    response = cases.post({"model": HASH, **body}, path)
    assert (response.status_code, error_of(response)["param"]) == (400, param)


def test_version(cases: Cases) -> None:
    assert set(cases.http.get("/version").json()) == {"version"}


# -- n choices -----------------------------------------------------------------------------------


def test_choices_share_their_prompt(cases: Cases) -> None:
    """Most of it is prefilled once: the others take over what the first has computed."""
    reused = "starsd:prefix_tokens_reused_total"
    before = counted(cases, reused)
    prompt = "a prompt that is long enough to be worth taking over, " * 3
    usage = cases.chat(prompt, model=HASH, n=4, max_tokens=2)["usage"]
    assert usage["prompt_tokens"] == len(prompt) + 2
    assert usage["completion_tokens"] == 8
    wanted = before + 3 * (len(prompt) - 64)
    deadline = time.monotonic() + DEADLINE_S
    while counted(cases, reused) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def counted(cases: Cases, name: str) -> float:
    lines = cases.lab.services[HASH].metrics().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_more_choices_than_a_target_holds_are_refused(cases: Cases) -> None:
    response = cases.post({"model": ECHO, "messages": HI, "n": 100})
    assert (response.status_code, error_of(response)["param"]) == (400, "n")
    assert "16" in error_of(response)["message"]
