"""The dialogue on the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from rich.console import Console

from starsd.cli import talk as module
from starsd.cli.chat import Dialogue, Wishes
from starsd.cli.talk import talk
from starsd.errors import RemoteError
from tests.unit.cli.test_chat import LAST, delta, events

PIECES = [
    {"text": "a\tb", "origin": "accepted"},
    {"text": "c", "origin": "recovered"},
    {"text": "d", "origin": "bonus"},
    {"text": "e\n", "origin": "plain"},
    {"text": "f", "origin": None},
]
SAID = {**delta("a\tbcde\nf"), "starsd": {"pieces": PIECES}}
ANSWER = httpx.Response(200, text=events(SAID, LAST))


def dialogue(*answers: httpx.Response) -> Dialogue:
    waiting = list(answers)
    transport = httpx.MockTransport(lambda _: waiting.pop(0))
    return Dialogue("http://gateway", Wishes("m"), httpx.Client(transport=transport))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[io.StringIO, io.StringIO]]:
    """Sets what the user types and whether stdout is a terminal; gives stdout and stderr."""

    def set_up(*typed: str, colours: bool) -> tuple[io.StringIO, io.StringIO]:
        files, lines = (io.StringIO(), io.StringIO()), list(typed)

        class Fake(Console):
            def __init__(self, *, stderr: bool = False, **options: Any) -> None:
                options = {**options, "file": files[stderr], "color_system": "standard"}
                super().__init__(force_terminal=colours, **options)

            def input(self, *_: Any, **__: Any) -> str:
                if not lines:
                    raise EOFError
                return lines.pop(0)

        monkeypatch.setattr(module, "Console", Fake)
        return files

    return set_up


def test_tokens_are_coloured_by_origin(terminal: Any) -> None:
    shown, figures = terminal(colours=True)
    talk(dialogue(ANSWER), "hi")
    green, yellow, off = "\x1b[32m", "\x1b[33m", "\x1b[0m"
    answer = shown.getvalue()
    assert answer.startswith(green)
    assert f"{yellow}c{off}{yellow}d{off}e\nf\n" in answer
    assert "acceptance 0.75" in figures.getvalue()


def test_a_pipe_gets_the_text_as_it_is(terminal: Any) -> None:
    shown, _ = terminal(colours=False)
    talk(dialogue(ANSWER), "hi")
    assert shown.getvalue() == "a\tbcde\nf\n"


def test_a_dialogue_goes_on_until_the_end_of_input(terminal: Any) -> None:
    error = httpx.Response(500, json={"error": {"message": "out of order"}})
    shown, figures = terminal("one", "", "two", "three", colours=False)
    asking = dialogue(ANSWER, error, httpx.Response(200, text=events(SAID, LAST)))
    talk(asking)
    assert shown.getvalue() == 2 * "a\tbcde\nf\n"
    assert "out of order" in figures.getvalue()
    assert [turn["content"] for turn in asking.messages if turn["role"] == "user"] == [
        "one",
        "three",
    ]


def test_one_question_that_fails_is_an_error(terminal: Any) -> None:
    terminal(colours=False)
    with pytest.raises(RemoteError, match="x"):
        talk(dialogue(httpx.Response(400, json={"error": {"message": "x"}})), "hi")
