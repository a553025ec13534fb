"""``starsd up`` and ``starsd chat`` as a user runs them, on the tiny model."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from starsd.cli.up import Exit
from tests.tiny import LAYERS_DRAFT, make_tiny_model

DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where temporary files go; short, for a unix socket's path."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def starsd(*arguments: str, **env: str) -> subprocess.Popen[str]:
    # A session of its own, as a terminal would give it: nothing reaches it but what we send.
    return subprocess.Popen(
        [sys.executable, "-m", "starsd.cli", *arguments],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def drained(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    """Its log lines, read all the while so that it never blocks; killed at the end."""
    lines: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lines.extend, args=(process.stderr,))
    with process:
        reader.start()
        try:
            yield lines
        finally:
            process.kill()
            process.wait(DEADLINE_S)
            reader.join(DEADLINE_S)


def url_of(process: subprocess.Popen[str], log: list[str]) -> str:
    """The gateway's address, once it is announced."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"at (http://\S+)/v1", line):
            return found[1]
    raise AssertionError(f"it ended before it was ready: {''.join(log)}")


def test_up_serves_and_ctrl_c_ends_everything(tiny: Path, folder: Path) -> None:
    options = ["--targets", "2", "--draft", LAYERS_DRAFT, "--port", "0", "--model", str(tiny)]
    # A step of the tiny model is over before any hub could answer.
    limits = {"TMPDIR": str(folder), "STARSD_WAIT_BUDGET": "1000"}
    star = starsd("up", *options, **limits)
    with drained(star) as log:
        url = url_of(star, log)
        family = psutil.Process(star.pid).children(recursive=True)
        asked = starsd("chat", "Hello!", "--url", url, "--max-tokens", "12", "--temperature", "0")
        text, report = asked.communicate(timeout=DEADLINE_S)
        star.send_signal(signal.SIGINT)
        assert star.wait(DEADLINE_S) == Exit.STOPPED, "".join(log)
        gone, alive = psutil.wait_procs(family, timeout=5)
    assert asked.returncode == 0, report
    assert text.strip()
    assert re.search(r"TTFT \d+ ms, 12 tokens, .* tokens/s, acceptance [01]\.\d\d", report), report
    assert len(gone) >= 5  # Redis and four services, the models' processes besides
    assert alive == []
    assert list(folder.iterdir()) == []


def test_up_that_is_not_ready_in_time_ends(tiny: Path, folder: Path) -> None:
    limits = {"TMPDIR": str(folder), "STARSD_READY_TIMEOUT_S": "0.1"}
    star = starsd("up", "--port", "0", "--draft", "none", "--model", str(tiny), **limits)
    with drained(star) as log:
        assert star.wait(DEADLINE_S) == Exit.NOT_READY
    assert "not ready after 0.1 s: gateway, target-1, target-2" in "".join(log)
    assert list(folder.iterdir()) == []


def test_up_on_a_taken_port_starts_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        star = starsd("up", "--port", port)
        with drained(star) as log:
            assert star.wait(DEADLINE_S) == Exit.BAD_SETTING
    assert f"port {port} is taken" in "".join(log)
