"""Pydantic AI's agents."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.conformance.clients.asked import BASE, ECHO, KEY, MODEL, TEXT, THING_JSON, call_of


class Thing(BaseModel):
    name: str
    size: int


VEGA = Thing(name="Vega", size=3)


def model(name: str = ECHO) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=BASE, api_key=KEY))


async def test_plain_and_turns() -> None:
    agent = Agent(model(), instructions="Repeat.")
    first = await agent.run(TEXT)
    second = await agent.run("again", message_history=first.all_messages())
    assert (first.output, second.output) == (TEXT, "again")


async def test_stream_and_usage() -> None:
    async with Agent(model()).run_stream(TEXT) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        usage = result.usage
    assert "".join(pieces) == TEXT
    counted = usage() if callable(usage) else usage
    assert counted.output_tokens == len(TEXT.encode()) + 1


async def test_a_tool_is_called_and_its_result_comes_back() -> None:
    agent = Agent(model())
    seen: list[str] = []

    @agent.tool_plain
    def measure(name: str, size: int) -> str:
        seen.append(f"{name} {size}")
        return "measured"

    result = await agent.run(call_of("measure"))
    assert seen == ["Vega 3"]
    assert "measured" in result.output


async def test_output_by_a_tool() -> None:
    agent = Agent(model(), output_type=ToolOutput(Thing, name="thing"))
    assert (await agent.run(call_of("thing"))).output == VEGA


async def test_output_by_a_schema() -> None:
    agent = Agent(model(), output_type=NativeOutput(Thing))
    assert (await agent.run(THING_JSON)).output == VEGA


async def test_output_of_a_real_model() -> None:
    agent = Agent(model(MODEL), output_type=NativeOutput(Thing))
    settings = {"temperature": 0, "max_tokens": 150}
    result = await agent.run("Vega is a star of size 3.", model_settings=settings)
    assert isinstance(result.output, Thing)


@pytest.mark.parametrize(
    ("name", "settings", "status", "message"),
    [
        ("none", {}, 404, "model_not_found"),
        (ECHO, {"temperature": 9}, 400, "temperature=9"),
    ],
)
async def test_errors(name: str, settings: dict[str, float], status: int, message: str) -> None:
    with pytest.raises(ModelHTTPError, match=message) as caught:
        await Agent(model(name)).run("x", model_settings=settings)
    assert caught.value.status_code == status
