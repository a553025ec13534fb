"""The README's Python and curl work as they stand, but for the address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from starsd.check.lab import Lab, Service

README = (Path(__file__).parents[2] / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Service]:
    """Of a star that repeats what it is told."""
    with Lab(scripted="tests.scripted:EchoModel") as lab:
        lab.start("draft", "draft")
        lab.start("target", "target")
        service = lab.start("gateway", "gateway")
        lab.wait_ready()
        yield service


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", blocks("python"))
def test_python(gateway: Service, snippet: str) -> None:
    assert ADDRESS in snippet
    program = snippet.replace(ADDRESS, gateway.url)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "Why is the sky blue?"


def test_curl(gateway: Service) -> None:
    (address, path, body), *others = re.findall(
        r"curl -N (http://[^/]+)(/\S+) .*?-d '(.*?)'", README, re.DOTALL
    )
    assert address == ADDRESS
    assert not others
    answer = httpx.post(f"{gateway.url}{path}", json=json.loads(body), timeout=60)
    chunks = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert chunks[-1] == "[DONE]"
    texts = [json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]
    assert "".join(texts) == "Hello!"
