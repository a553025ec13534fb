"""``scripts/load``: a star, load on it, and nothing left afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.load.fake_gateway import MAX_TOKENS, FakeGateway, good

SCRIPT = Path(__file__).parents[2] / "scripts" / "load"
DEADLINE_S = 240.0
ANSWER = ("--max-tokens", str(MAX_TOKENS))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where temporary files go; short, for a unix socket's path."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Its Locust is real; its star is whatever listens at $FAKE_URL."""
    (tmp_path / "bin").mkdir()
    programs = {
        "starsd": 'echo starting >&2\necho "StarSD serves fake at $FAKE_URL/v1 "\nexec sleep 60',
        "locust": f'exec {sys.executable} -m locust "$@"',
    }
    for name, text in programs.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return tmp_path


async def start(venv: Path | str, folder: Path, *options: str, **env: str) -> Process:
    env = {**os.environ, "TMPDIR": str(folder), **env}
    return await asyncio.create_subprocess_exec(
        SCRIPT, str(venv), *options, env=env, stdout=PIPE, stderr=STDOUT
    )


async def finish(process: Process, folder: Path) -> tuple[int | None, str]:
    """Exit code and output; no process and no file of it is left."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()  # it ends what it started
            await process.wait()
    assert left_in(folder) == []
    # torch may leave an empty cache of its compiler.
    assert [name for name in os.listdir(folder) if not name.startswith("torchinductor_")] == []
    return process.returncode, out.decode()


def left_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process)
    return found


@pytest.mark.real
@pytest.mark.timeout(2 * DEADLINE_S)
async def test_a_star_under_load(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "run"
    options = ["--users", "2", "--run-time", "15s", "--max-tokens", "24"]
    options += ["--json-file", str(report)]
    code, out = await finish(await start(sys.prefix, folder, *options), folder)
    assert code == 0, out
    rows = {row["name"]: row for row in json.loads(report.with_suffix(".json").read_text())}
    assert all(row["num_failures"] == 0 for row in rows.values())
    for name in ("/v1/chat/completions", "/v1/chat/completions [stream]", "TTFT", "TPOT"):
        assert rows[name]["num_requests"] > 0, name
    assert rows["accepted tokens"]["total_response_time"] > 0
    assert " requests, 0 failures\n" in out


async def test_its_exit_code_is_locusts(folder: Path, venv: Path) -> None:
    full = FakeGateway(lambda _: [b'{"error": {"message": "full"}}'], status=503)
    options = ["--run-time", "1s", *ANSWER, "--exit-code-on-error", "7"]
    async with full.serving() as url:
        code, out = await finish(await start(venv, folder, *options, FAKE_URL=url), folder)
    assert code == 7, out
    assert "status 503: full" in out
    assert "load: the star's last words:\nstarting\n" in out


async def test_sigterm_ends_everything(folder: Path, venv: Path) -> None:
    server = FakeGateway(good)
    async with server.serving() as url, asyncio.timeout(DEADLINE_S):
        process = await start(venv, folder, "--run-time", "5m", *ANSWER, FAKE_URL=url)
        while not server.asked:
            assert process.returncode is None
            await asyncio.sleep(0.05)
        assert len(left_in(folder)) == 3  # the script, the star and Locust
        process.terminate()
        await asyncio.sleep(0.1)
        process.terminate()  # changes nothing
        code, out = await finish(process, folder)
    assert code == 128 + 15
    assert "requests, 0 failures" in out


async def test_a_star_that_does_not_start(folder: Path) -> None:
    process = await start(sys.prefix, folder, STARSD_NOPE="1")
    code, out = await finish(process, folder)
    assert code == 1
    assert "unknown settings STARSD_NOPE" in out
    assert "locust" not in out
