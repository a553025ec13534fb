"""What a service logs, and how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from starsd.log import Seldom, only_warnings
from starsd.service import run
from starsd.settings.common import ServiceSettings


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """``run`` configures structlog for the whole process."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def logged(capsys: pytest.CaptureFixture[str], **settings: Any) -> list[str]:
    """The lines of a service that logs one of each level."""

    async def main(_stop: asyncio.Event) -> None:
        log = structlog.get_logger()
        for write in (log.debug, log.info, log.warning, log.error):
            write("said", number=7)

    run("cook", ServiceSettings(**settings), main)
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("level", "lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)]
)
def test_log_level(level: str, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(logged(capsys, log_level=level)) == lines


def test_log_json(capsys: pytest.CaptureFixture[str]) -> None:
    *_, last = logged(capsys, log_json=True)
    line = json.loads(last)
    assert (line["event"], line["level"], line["number"]) == ("said", "error", 7)
    assert line["service"] == "cook"
    *_, last = logged(capsys)
    with pytest.raises(ValueError, match="line 1"):
        json.loads(last)


def test_only_warnings_go_to_stderr_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    log = structlog.get_logger()
    before = structlog.get_config()
    with only_warnings():
        log.info("loaded")
        log.warning("slow", core=1)
    found = capsys.readouterr()
    assert found.out == ""
    assert "slow" in found.err
    assert "loaded" not in found.err
    assert structlog.get_config() == before


def test_lines_that_others_can_cause_are_seldom_and_tell_what_was_left_out() -> None:
    now, lines = [0.0], list[tuple[str, dict[str, object]]]()
    seldom = Seldom(every_s=2.0, clock=lambda: now[0])
    for time, number in ((0.0, 1), (0.5, 2), (1.9, 3), (2.0, 4), (5.0, 5)):
        now[0] = time
        seldom(lambda event, **facts: lines.append((event, facts)), "bad", number=number)
    assert lines == [
        ("bad", {"number": 1}),
        ("bad", {"number": 4, "left_out": 2}),
        ("bad", {"number": 5}),
    ]
