"""docs/api.md says what the schema says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from services.gateway.options import Options, StarOptions
from services.gateway.schema import ChatRequest, CompletionRequest
from services.gateway.tokens import DetokenizeRequest, TokenizeRequest
from services.gateway.unserved import CHAT, COMPLETION
from starsd.errors import StarsdError

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
BODIES: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}


def section(heading: str) -> str:
    """What stands under a heading, up to the next of any kind."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.M | re.S)
    assert found is not None, heading
    return found[1]


def listed(heading: str) -> set[str]:
    """Code in the first cells of a section's table."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def refused(heading: str) -> set[str]:
    paragraph = section(heading).split("Refused unless null or neutral:")[1].split("\n\n")[0]
    return set(re.findall(r"`(\w+)`", paragraph))


def test_every_field_is_listed() -> None:
    common = set(Options.model_fields)
    assert listed("Fields") == common

    assert listed("Chat completions") == set(ChatRequest.model_fields) - common
    own = set(CompletionRequest.model_fields) - common
    assert listed("Completions") - {"n"} == own
    assert listed("The star's own fields") == set(StarOptions.model_fields)


def test_everything_refused_is_listed() -> None:
    assert refused("Chat completions") == set(CHAT)
    assert refused("Completions") == set(COMPLETION)


@pytest.mark.parametrize(("url", "body"), re.findall(r"^curl (\S+) .*\n  -d '(.*)'$", PAGE, re.M))
def test_examples_are_valid(url: str, body: str) -> None:
    path = url.removeprefix("http://127.0.0.1:8000")
    BODIES[path].model_validate(json.loads(body))


def test_codes_of_errors_exist() -> None:
    codes = {code for line in section("Errors").splitlines() for code in _codes(line)}
    ours = {cls.code for cls in _tree(StarsdError)}
    framework = {"not_found", "method_not_allowed", "request_timeout", "request_too_large"}
    assert {"invalid_value", "model_not_found", "timeout"} <= codes
    assert codes <= ours | framework


def _codes(line: str) -> list[str]:
    return re.findall(r"`(\w+)`", line.split("|")[2]) if line.startswith("| ") else []


def _tree(cls: type[StarsdError]) -> set[type[StarsdError]]:
    return {cls}.union(*map(_tree, cls.__subclasses__()))
