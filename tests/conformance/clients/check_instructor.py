"""Instructor: the modes that an OpenAI server serves."""

from __future__ import annotations

from typing import Any, Literal

import instructor
import openai
import pytest
from instructor import Mode
from pydantic import BaseModel, ConfigDict

from tests.conformance.clients.asked import BASE, ECHO, KEY, MODEL, THING, THING_JSON, call_of


class Thing(BaseModel):
    name: str
    size: int


def client(mode: Mode) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=KEY), mode=mode)


def asked(text: str, model: str = ECHO, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": 150, "max_retries": 0, **fields}


class Star(BaseModel):
    """That a small model can fill in: unless told, it adds properties without end."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["sun", "planet"]
    large: bool


MODES = [(Mode.TOOLS, call_of("Thing")), (Mode.JSON, THING_JSON), (Mode.JSON_SCHEMA, THING_JSON)]


@pytest.mark.parametrize(("mode", "text"), MODES)
def test_plain(mode: Mode, text: str) -> None:
    found = client(mode).chat.completions.create(**asked(text), response_model=Thing)
    assert found.model_dump() == THING


@pytest.mark.parametrize("mode", [Mode.TOOLS, Mode.JSON_SCHEMA])
def test_a_real_model(mode: Mode) -> None:
    request = asked("Vega is a large sun.", MODEL, temperature=0)
    found = client(mode).chat.completions.create(**request, response_model=Star)
    assert isinstance(found, Star)


def test_usage_comes_along() -> None:
    create = client(Mode.TOOLS).chat.completions.create_with_completion
    found, answer = create(**asked(call_of("Thing")), response_model=Thing)
    assert found.model_dump() == THING
    assert answer.usage.completion_tokens > 0


def test_partial_objects_of_a_stream() -> None:
    create = client(Mode.TOOLS).chat.completions.create_partial
    *_, last = create(**asked(call_of("PartialThing")), response_model=Thing)
    assert last.model_dump() == THING


def test_unknown_model() -> None:
    with pytest.raises(Exception, match="model_not_found"):
        client(Mode.TOOLS).chat.completions.create(**asked("x", "none"), response_model=Thing)
