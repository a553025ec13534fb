"""The whole star through the official ``openai`` client: text is that of plain decoding."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.livestar import (
    MODEL,
    Heard,
    LiveStar,
    Question,
    eventually,
    forgot_hub,
    questions,
    texts,
)
from tests.scripted import ByteTokenizer
from tests.tiny import LAYERS_DRAFT

ANSWER = 60
USAGE: Any = {"include_usage": True}
QUESTIONS = [
    Question(f"Frage {seed} \N{SNOWMAN}", seed, temperature, ANSWER)
    for temperature in (0.0, 0.8)
    for seed in (3, 2**62 + 1)
]


@pytest.fixture(scope="module")
def star() -> Iterator[LiveStar]:
    with LiveStar() as star:
        star.start_all()
        star.wait_whole()
        yield star


@pytest.fixture(scope="module")
def truth(star: LiveStar) -> list[Heard]:
    return star.plain(QUESTIONS)


def whole(answer: ChatCompletion) -> Heard:
    """The same facts as of a stream."""
    (choice,) = answer.choices
    starsd = (answer.model_extra or {})["starsd"]
    return Heard(choice.message.content or "", choice.finish_reason, answer.usage, starsd)


def joined(chunks: Sequence[ChatCompletionChunk]) -> Heard:
    heard = Heard()
    for chunk in chunks:
        heard.note(chunk)
    return heard


def ask(star: LiveStar, stream: bool) -> list[Heard]:
    with star.client() as client:
        create = client.chat.completions.create
        if not stream:
            return [whole(create(**one.body)) for one in QUESTIONS]
        asked = (create(**one.body, stream=True, stream_options=USAGE) for one in QUESTIONS)
        return [joined(list(chunks)) for chunks in asked]


async def ask_at_once(star: LiveStar, stream: bool) -> list[Heard]:
    async with star.async_client() as client:

        async def one(question: Question) -> Heard:
            create = client.chat.completions.create
            if not stream:
                return whole(await create(**question.body))
            chunks = await create(**question.body, stream=True, stream_options=USAGE)
            return joined([chunk async for chunk in chunks])

        return await asyncio.gather(*(one(question) for question in QUESTIONS))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_answers_are_those_of_plain_decoding(
    star: LiveStar, truth: list[Heard], stream: bool, at_once: bool
) -> None:
    heard = asyncio.run(ask_at_once(star, stream)) if at_once else ask(star, stream)
    assert texts(heard) == texts(truth)
    assert len({one.text for one in truth}) == len(QUESTIONS)
    assert sum(one.starsd["accepted"] for one in heard) > 0
    for question, one in zip(QUESTIONS, heard, strict=True):
        assert one.usage is not None
        asked = ByteTokenizer().encode_chat(question.body["messages"])
        assert one.usage.prompt_tokens == len(asked)
        assert one.usage.completion_tokens == ANSWER
        assert one.usage.total_tokens == len(asked) + ANSWER
        assert one.reason == "length"
        assert one.starsd["target"] in ("a", "b")
        assert 0 <= one.starsd["accepted"] <= one.starsd["proposed"]
        # What was not accepted came one token a step, with a proposal or without.
        rest = ANSWER - one.starsd["accepted"]
        assert rest - 2 <= one.starsd["rounds"] + one.starsd["fallbacks"] <= rest


def test_plain_answers_tell_of_no_star(truth: list[Heard]) -> None:
    for one in truth:
        assert one.starsd["rounds"] == one.starsd["proposed"] == one.starsd["fallbacks"] == 0
        assert one.starsd["target"] == "plain"


def test_a_seed_that_nobody_gave_is_drawn_anew(star: LiveStar) -> None:
    body = QUESTIONS[-1].body | {"seed": None}
    with star.client() as client:
        answers = [whole(client.chat.completions.create(**body)) for _ in range(2)]
    assert answers[0].text != answers[1].text


def test_stop_ends_an_accepted_run_where_plain_decoding_does(star: LiveStar) -> None:
    asked = QUESTIONS[2]
    text = star.plain([asked])[0].text
    stop = text[20:22]
    with star.client() as client:
        got = whole(client.chat.completions.create(**asked.body, stop=stop))
    assert got.text == text[: text.index(stop)]
    assert got.reason == "stop"


def test_models_and_errors_are_the_clients_own(star: LiveStar) -> None:
    with star.client() as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        body = QUESTIONS[0].body
        with pytest.raises(openai.NotFoundError, match="no such model"):
            client.chat.completions.create(**body | {"model": "other"})
        with pytest.raises(openai.BadRequestError, match="context"):
            client.chat.completions.create(**body | {"max_tokens": 10_000})
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(**body | {"temperature": -1})


def test_a_real_model_says_the_same_with_a_hub(tiny_model: Path) -> None:
    """A tiny Llama, its first layers as the draft; batches differ, and may not matter."""
    model = {"model": str(tiny_model), "max_length": 256, "max_sequences": 8, "dtype": "float32"}
    patient = {"wait_budget": 1000, "ngram": 0, "depth_control": "fixed"}
    target = {**model, "batch_invariant": True, **patient}
    asked = questions(8, max_tokens=160)  # a hub is not waited for before its first reply
    with LiveStar(step_s=0.0, target=target, hub={**model, "draft": LAYERS_DRAFT}) as star:
        star.start("a", "b", "gateway", "hub")
        star.wait_whole()
        heard = star.through(asked)
        star["hub"].kill()
        for one in star.targets:
            eventually(partial(forgot_hub, one), "the hub is forgotten")
        plain = star.through(asked)
    assert texts(heard) == texts(plain)
    assert not any(one.starsd["rounds"] for one in plain)
    proposed = sum(one.starsd["proposed"] for one in heard)
    accepted = sum(one.starsd["accepted"] for one in heard)
    assert 0.1 < accepted / proposed < 0.95
