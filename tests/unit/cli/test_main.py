"""The command line itself: what it refuses, and what it passes on."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from starsd.cli import main
from starsd.cli.reference import markdown
from starsd.cli.up import Exit, Options

RUNNER = CliRunner()


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Options that ``up`` was called with; nothing is started."""
    seen: list[Options] = []

    def record(options: Options) -> Exit:
        seen.append(options)
        return Exit.NOT_READY

    monkeypatch.setattr(main, "run_star", record)
    return seen


def test_up_passes_its_options_and_exit_code(options: list[Options]) -> None:
    arguments = [
        "up",
        "--targets",
        "3",
        "--draft",
        "layers:4",
        "--port",
        "0",
        "--redis",
        "unix://x",
        "--kv-memory",
        "1GiB",
    ]
    result = RUNNER.invoke(
        main.app, [*arguments, "--model", "m", "--dtype", "bfloat16", "--quantize", "none"]
    )
    assert result.exit_code == Exit.NOT_READY
    assert options == [Options(3, "layers:4", "m", "bfloat16", "none", "1GiB", 0, "unix://x")]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--targets", "0"], "STARSD_TARGETS_COUNT"),
        (["--dtype", "int4"], "STARSD_DTYPE"),
        (["--kv-memory", "plenty"], "STARSD_KV_MEMORY"),
        (["--port", "70000"], "STARSD_PORT"),
    ],
)
def test_up_refuses_bad_options_before_it_starts_anything(arguments: list[str], named: str) -> None:
    result = RUNNER.invoke(main.app, ["up", *arguments])
    assert result.exit_code == Exit.BAD_SETTING
    assert named in result.stderr


def test_up_refuses_a_variable_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_WAIT_BUGDET", "3")
    result = RUNNER.invoke(main.app, ["up"])
    assert result.exit_code == Exit.BAD_SETTING
    assert "STARSD_WAIT_BUGDET" in result.stderr


@pytest.mark.parametrize("service", ["gateway", "target", "draft"])
def test_a_service_takes_the_commands_place(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda *arguments: called.append(arguments))
    assert RUNNER.invoke(main.app, [service]).exit_code == 0
    assert called == [(sys.executable, [sys.executable, "-m", f"services.{service}"])]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Requests of ``chat``; a gateway of one model answers each."""
    seen: list[httpx.Request] = []
    client = httpx.Client

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.method == "GET":
            return httpx.Response(200, json={"data": [{"id": "listed"}]})
        return httpx.Response(200, text="data: [DONE]\n\n")

    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(httpx, "Client", lambda **_: client(transport=transport))
    return seen


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--model", "m"], "model", "m"),
        (["--max-tokens", "7"], "max_tokens", 7),
        (["--temperature", "0"], "temperature", 0.0),
        (["--seed", "3"], "seed", 3),
    ],
)
def test_chat_asks_as_its_options_say(
    arguments: list[str], field: str, value: object, asked: list[httpx.Request]
) -> None:
    for given in ([], arguments):
        assert RUNNER.invoke(main.app, ["chat", "hi", *given]).exit_code == 0
    plain, changed = (json.loads(one.content) for one in asked if one.method == "POST")
    assert plain["model"] == "listed"
    assert changed[field] == value
    assert {**changed, field: None} == {**plain, field: None}


@pytest.mark.parametrize("url", ["http://there:1", "http://there:1/", "http://there:1/v1"])
def test_chat_asks_the_url(url: str, asked: list[httpx.Request]) -> None:
    assert RUNNER.invoke(main.app, ["chat", "hi", "--url", url]).exit_code == 0
    assert {str(one.url).removesuffix("s") for one in asked} == {
        "http://there:1/v1/model",
        "http://there:1/v1/chat/completion",
    }


def test_chat_without_a_gateway_says_so() -> None:
    result = RUNNER.invoke(main.app, ["chat", "hi", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "is `starsd up` running?" in result.stderr


def test_settings_lists_them() -> None:
    result = RUNNER.invoke(main.app, ["settings"], env={"COLUMNS": "200"})
    assert "STARSD_WAIT_BUDGET" in result.stdout


def test_settings_markdown_is_the_document() -> None:
    assert RUNNER.invoke(main.app, ["settings", "--markdown"]).stdout == markdown()
    assert RUNNER.invoke(main.app, ["settings"]).stdout != markdown()


def test_version() -> None:
    assert RUNNER.invoke(main.app, ["version"]).stdout == "0.1.0\n"
