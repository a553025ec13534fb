"""Locust itself, on servers that answer right or wrong."""

from __future__ import annotations

import asyncio
import csv
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.load.fake_gateway import CUT, MAX_TOKENS, TOKENS, FakeGateway, completion, good, stream

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
PLAIN = "/v1/chat/completions"
STREAMED = f"{PLAIN} [stream]"
METRICS = {"TTFT", "TPOT", "tokens/s", "output tokens", "proposed tokens", "accepted tokens"}
REPEATED = "same seed, same text"
DEADLINE_S = 60.0

FAULTS = {
    "no done": (stream()[:-1], [completion()], "the stream ended without [DONE]"),
    "wrong usage": (stream(total_tokens=3), [completion(total_tokens=3)], "wrong usage: total"),
    "empty": (stream(texts=()), [completion(text="")], "an empty answer"),
    "cut": ([*stream()[:3], CUT], [completion()[:9], CUT], "the connection failed: "),
}


@dataclass(frozen=True)
class Run:
    code: int
    log: str


async def locust(url: str, *options: str) -> Run:
    """Two users, one that streams and one that does not, for about a second."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--host", url, "--headless"),
        *("--users", "2", "--spawn-rate", "2", "--run-time", "1s", "--stop-timeout", "5"),
        *("--only-summary", "--max-tokens", str(MAX_TOKENS)),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Run(process.returncode, out.decode())


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text())}


def mean(row: dict[str, Any]) -> float:
    return float(row["total_response_time"]) / int(row["num_requests"])


async def test_a_good_server(tmp_path: Path) -> None:
    report = tmp_path / "run"
    server = FakeGateway(good, pause_s=0.04)
    async with server.serving() as url:
        run = await locust(url, "--json-file", str(report), "--repeat-share", "1")
    assert run.code == 0, run.log
    found = rows(report.with_suffix(".json"))
    assert found.keys() == {PLAIN, STREAMED, "/v1/models", REPEATED, *METRICS}
    assert all(row["num_failures"] == 0 for row in found.values())
    answers = found[PLAIN]["num_requests"] + found[STREAMED]["num_requests"]
    assert answers == server.asked == found["output tokens"]["num_requests"]
    assert found["TTFT"]["num_requests"] == found[STREAMED]["num_requests"]
    # Parts come 40 ms apart: the first text is the second of seven, and not held back.
    first, end = mean(found["TTFT"]), mean(found[STREAMED])
    assert 80 <= first <= end - 200
    assert mean(found["TPOT"]) == pytest.approx((end - first) / (TOKENS - 1), abs=2)
    assert f"{answers:,} requests, 0 failures\n{answers * TOKENS:,} tokens in " in run.log
    assert "proposed tokens accepted: 0.75\n" in run.log


async def test_csv(tmp_path: Path) -> None:
    """Locust writes it once a second, and not at the end."""
    async with FakeGateway(good).serving() as url:
        run = await locust(url, "--csv", str(tmp_path / "run"), "--run-time", "3s")
    assert run.code == 0, run.log
    with (tmp_path / "run_stats.csv").open(newline="") as file:
        table = {row["Name"]: row for row in csv.DictReader(file)}
    assert {PLAIN, STREAMED, *METRICS} <= table.keys()
    assert {"50%", "95%", "99%"} <= table["TTFT"].keys()


@pytest.mark.parametrize(("streamed", "plain", "message"), FAULTS.values(), ids=FAULTS)
async def test_a_wrong_answer_fails(
    streamed: Sequence[bytes], plain: Sequence[bytes], message: str
) -> None:
    server = FakeGateway(lambda stream: streamed if stream else plain)
    async with server.serving() as url:
        run = await locust(url)
    assert run.code == 1, run.log
    failed = [line for line in run.log.splitlines() if message in line]
    assert any(STREAMED in line for line in failed), run.log
    if plain != [completion()]:
        assert any(STREAMED not in line for line in failed), run.log


async def test_a_refusal_fails_and_is_not_repeated_at_once() -> None:
    server = FakeGateway(lambda _: [b'{"error": {"message": "full"}}'], status=503)
    async with server.serving() as url:
        run = await locust(url)
    assert run.code == 1, run.log
    assert "status 503: full" in run.log
    assert "no right answer came" in run.log
    assert 2 <= server.asked <= 6


async def test_another_text_for_the_same_seed_fails() -> None:
    numbers = count()

    def answer(streamed: bool) -> list[bytes]:
        text = f"text {next(numbers)}"
        return stream(texts=[text]) if streamed else [completion(text=text)]

    async with FakeGateway(answer).serving() as url:
        run = await locust(url, "--repeat-share", "1")
    assert run.code == 1, run.log
    assert f"{REPEATED}: BadAnswerError('another text')" in run.log


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that nobody listens at, and nobody else gets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_no_server_fails(nowhere: str) -> None:
    run = await locust(nowhere)
    assert run.code == 1
    assert "the connection failed: ConnectionRefusedError" in run.log
    assert "0 requests" in run.log


async def test_no_requests_fail(nowhere: str) -> None:
    """Nothing failed, and nothing was measured."""
    run = await locust(nowhere, "--users", "0")
    assert run.code == 1
    assert "no right answer came" in run.log


async def test_only_plain_users_with_a_model_and_a_key() -> None:
    server = FakeGateway(lambda streamed: [] if streamed else [completion()], key="Bearer k")
    async with server.serving() as url:
        run = await locust(url, "--stream-share", "0", "--model", "fake", "--api-key", "k")
    assert run.code == 0, run.log
    assert STREAMED not in run.log
    assert "/v1/models" not in run.log


async def test_bad_options(nowhere: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("oops")
    share, file = await asyncio.gather(
        locust(nowhere, "--stream-share", "2"), locust(nowhere, "--prompts", str(prompts))
    )
    assert share.code == 2
    assert "argument --stream-share: '2' is not between 0 and 1" in share.log
    assert file.code == 1
    assert "--prompts: " in file.log
    assert "prompts.jsonl:1: " in file.log
    assert "Traceback" not in file.log
