"""The star of docker-compose.yml, up for a check: its commands, containers and answers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from starsd.process.ports import free_ports

ROOT = Path(__file__).parents[2]
PROJECT = "starsd-check"
MODEL = "smollm2-135m-instruct"
COMMAND_S = 240.0
WAIT_S = 240.0


@dataclass
class Answer:
    """A streamed answer while it grows; ``began`` is set by its first text."""

    text: str = ""
    reason: str | None = None
    usage: object = None
    stats: dict[str, Any] = field(default_factory=dict)
    began: threading.Event = field(default_factory=threading.Event)


class ComposeStar:
    """Has a project name and a port of its own: a star of yours may run beside it."""

    def __init__(self) -> None:
        [port] = free_ports(1, "127.0.0.1")
        self.url = f"http://127.0.0.1:{port}"
        self._client = OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)
        yours = {k: v for k, v in os.environ.items() if not k.startswith("STARSD_")}
        self._environment = {
            **yours,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "STARSD_PORT": str(port),
            "STARSD_MAX_LENGTH": "512",
            "STARSD_DRAIN_S": "120",
        }

    def docker(self, *arguments: str) -> str:
        """What it prints. Fails with what it says."""
        ran = subprocess.run(
            ["docker", *arguments],
            cwd=ROOT,
            env=self._environment,
            text=True,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert ran.returncode == 0, f"docker {' '.join(arguments)}: {ran.stderr[-4000:]}"
        return ran.stdout

    def compose(self, *arguments: str) -> str:
        return self.docker("compose", *arguments)

    def up(self, *, targets: int) -> None:
        """Returns once all containers are healthy."""
        wait = ("--detach", "--wait", "--wait-timeout", str(int(COMMAND_S) - 20))
        self.compose("up", "--no-build", *wait, "--scale", f"target={targets}")

    def python(self, service: str, program: str) -> str:
        """What a program prints inside a service's first container."""
        return self.compose("exec", "-T", service, "python", "-c", program).strip()

    def containers(self, *services: str) -> list[dict[str, Any]]:
        """``docker inspect`` of the containers of some or all services, running or not."""
        ids = self.compose("ps", "--all", "--quiet", *services).split()
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", *ids))
        return found

    def health(self) -> dict[str, Any]:
        """The gateway's, over the published port."""
        body: dict[str, Any] = httpx.get(f"{self.url}/health/ready", timeout=5).json()
        return body

    def chat(self, question: str, *, tokens: int = 24) -> Answer:
        """An answer in one piece."""
        done = self._client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": question}],
            max_tokens=tokens,
            seed=7,
        )
        [choice] = done.choices
        stats = (done.model_extra or {})["starsd"]
        return Answer(choice.message.content or "", choice.finish_reason, done.usage, stats)

    def stream(self, question: str, *, tokens: int = 24, answer: Answer | None = None) -> Answer:
        """The same, streamed."""
        answer = answer or Answer()
        chunks = self._client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": question}],
            max_tokens=tokens,
            seed=7,
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in chunks:
            for choice in chunk.choices:
                answer.text += choice.delta.content or ""
                answer.reason = choice.finish_reason or answer.reason
            if answer.text:
                answer.began.set()
            answer.usage = chunk.usage or answer.usage
            answer.stats = (chunk.model_extra or {}).get("starsd") or answer.stats
        return answer

    @contextlib.contextmanager
    def streaming(self, questions: Sequence[str], tokens: int) -> Iterator[list[Future[Answer]]]:
        """Streams that have begun and, when the block is entered, have not ended."""
        with ThreadPoolExecutor(len(questions)) as pool:
            answers = [Answer() for _ in questions]
            futures = [
                pool.submit(self.stream, question, tokens=tokens, answer=answer)
                for question, answer in zip(questions, answers, strict=True)
            ]
            assert all(answer.began.wait(WAIT_S) for answer in answers)
            assert not any(future.done() for future in futures)
            yield futures


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait for it, at most ``WAIT_S``."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.5)
