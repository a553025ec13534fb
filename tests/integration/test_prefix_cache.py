"""A chat's second turn through a real gateway: it goes where the first was, and is mostly known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from starsd.check.lab import Service
from tests.livestar import LiveStar, eventually, value
from tests.tiny import LAYERS_DRAFT

MODEL: dict[str, Any] = {"dtype": "float32", "max_length": 512, "max_sequences": 4}
TARGET: dict[str, Any] = {"scripted": "", "batch_invariant": True, "wait_budget": 1000, "ngram": 0}
QUESTION = (
    "please answer the question, and propose another one to the star and to the targets; " * 4
)
REUSED = "starsd:prefix_tokens_reused_total"
Messages = list[dict[str, str]]


@pytest.fixture(scope="module")
def star(tiny_model: Path) -> Iterator[LiveStar]:
    """A hub, two targets that keep prefixes, and ``plain``, which neither keeps nor drafts."""
    model = MODEL | {"model": str(tiny_model)}
    hub = {**model, "scripted": "", "draft": LAYERS_DRAFT}
    with LiveStar(step_s=0.0, target=model | TARGET, hub=hub) as star:
        star.start("a", "b", "hub", "gateway")
        star.lab.wait_ready()
        star.lab.wait_hubs()
        own = model | TARGET | {"prefix_cache": 0, "drafting": False, "redis_url": ""}
        star.lab.start("plain", "target", served_model_name="scripted", **own)
        star.start("reference")
        star.lab.wait_ready()
        yield star


class Chat:
    """A dialogue that remembers what was said; each chat has a system prompt of its own."""

    def __init__(
        self, client: openai.OpenAI, name: str, key: str = "none", session: str = ""
    ) -> None:
        headers = {"X-Session-Id": session} if session else {}
        self._client = client.with_options(api_key=key, default_headers=headers)
        self.messages: Messages = [{"role": "system", "content": f"{name}: {QUESTION}"}]
        self.cached = 0
        self.prompt_tokens = 0
        self.target = ""

    def say(self, text: str, max_tokens: int = 40, temperature: float = 0.8) -> str:
        self.messages.append({"role": "user", "content": text})
        answer = self._client.chat.completions.create(
            model="scripted",
            messages=self.messages,  # type: ignore[arg-type]
            seed=7,
            max_tokens=max_tokens,
            temperature=temperature,
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        self.cached = answer.usage.prompt_tokens_details.cached_tokens or 0
        self.prompt_tokens = answer.usage.prompt_tokens
        assert answer.model_extra is not None
        self.target = answer.model_extra["starsd"]["target"]
        said = answer.choices[0].message.content or ""
        self.messages.append({"role": "assistant", "content": said})
        return said


def reused(star: LiveStar) -> float:
    return sum(value(target, REUSED) for target in star.targets)


def settled(star: LiveStar) -> float:
    """``reused`` when earlier answers are counted: targets tell once a second."""
    seen: list[float] = []

    def twice_the_same() -> bool:
        time.sleep(1.5)
        seen.append(reused(star))
        return seen[-2:] == [seen[-1]] * 2

    eventually(twice_the_same, "earlier answers are counted")
    return seen[-1]


def test_a_second_turn_computes_only_what_is_new(star: LiveStar) -> None:
    """And says the same as a target that computes all of it, with drafts or without."""
    before = settled(star)
    chat, plain = Chat(star.client(), "one"), Chat(star.client("reference"), "one")
    cached = 0
    for turn, text in enumerate(("first question", "and another", "the last one")):
        known = chat.prompt_tokens
        assert chat.say(text) == plain.say(text)
        assert plain.cached == 0
        assert chat.cached >= known - 1
        assert (chat.cached > 0) == (turn > 0)
        cached += chat.cached
    assert cached > 200
    eventually(lambda: reused(star) - before == cached, "the targets count as much")
    assert value(star["gateway"], "starsd:requests_routed_total", reason="prefix") >= 2


def test_tenants_share_nothing(star: LiveStar) -> None:
    chats = [Chat(star.client(), "two", key) for key in ("one", "two", "one")]
    assert len({chat.say("first question") for chat in chats}) == 1
    assert [chat.cached > 0 for chat in chats] == [False, False, True]


def test_many_chats_stay_within_the_bound(star: LiveStar) -> None:
    """Twelve of them in two times four slots; those still known go on where they were."""
    chats = [Chat(star.client(), f"chat {index}") for index in range(12)]
    for chat in chats:
        chat.say("first question", max_tokens=8)
    for chat in chats[-2:]:
        chat.say("and another", max_tokens=8)
        assert chat.cached > 80
    for target in star.targets:
        eventually(partial(kept, target), "some is kept")
        assert kept(target) <= value(target, "starsd:kv_blocks") / 2
    eventually(lambda: evicted(star["a"]) + evicted(star["b"]) > 0, "others made room")


def kept(target: Service) -> float:
    return value(target, "starsd:prefix_cache_blocks")


def evicted(target: Service) -> float:
    return value(target, "starsd:prefix_cache_evicted_blocks_total")


def test_samples_at_once_say_what_they_say_alone(star: LiveStar) -> None:
    """Second turns of one beginning, together and from kept prefixes."""
    chat = Chat(star.client(), "many")
    chat.say("first question")

    async def all_at_once() -> list[str]:
        async with star.async_client() as client:
            asked = [_sample(client, chat.messages, seed) for seed in range(6)]
            return list(await asyncio.gather(*asked))

    async def one_by_one() -> list[str]:
        async with star.async_client("reference") as client:
            return [await _sample(client, chat.messages, seed) for seed in range(6)]

    assert asyncio.run(all_at_once()) == asyncio.run(one_by_one())


async def _sample(client: openai.AsyncOpenAI, before: Messages, seed: int) -> str:
    answer = await client.chat.completions.create(
        model="scripted",
        messages=[*before, {"role": "user", "content": "and another"}],  # type: ignore[list-item]
        seed=seed,
        max_tokens=40,
        temperature=0.9,
    )
    return answer.choices[0].message.content or ""


def test_sessions_and_chats_survive_their_target(star: LiveStar) -> None:
    """Last here: it kills one."""
    chats = [Chat(star.client(), f"s{index}", session=f"s{index}") for index in range(6)]
    chats += [Chat(star.client(), f"c{index}") for index in range(4)]
    for chat in chats:
        chat.say("a question", max_tokens=4)
        home = chat.target
        chat.say("a question", max_tokens=4)
        assert chat.target == home
    dead = chats[0].target
    star[dead].kill()
    alive = {"a": "b", "b": "a"}[dead]
    for chat in chats:
        chat.say("a question", max_tokens=4)
        assert chat.target == alive
    star.repair(dead)
    star[dead].wait_ready()
    eventually(lambda: value(star["gateway"], "starsd:targets_live") == 2, "both are live")
    for chat in chats:
        chat.say("a question", max_tokens=4)
        assert chat.target == alive
