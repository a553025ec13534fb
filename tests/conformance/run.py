"""``make conformance``: every client on a star of its own, then docs/conformance.md.

``python -m tests.conformance.run [CLIENT ...]`` runs only those, and prints the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.environments import (
    CLIENTS,
    node_environment,
    python_environment,
    requirements,
)
from tests.conformance.report import Outcome, Result, page, read
from tests.conformance.star import running

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
RUN_S = 1800.0


@dataclass(frozen=True)
class Client:
    """``package`` is the one whose version counts. ``node``: its tests are JavaScript."""

    name: str
    title: str
    package: str
    node: bool = False

    @property
    def version(self) -> str:
        pins = CLIENTS / "node" / "package.json" if self.node else requirements(self.name)
        pin = rf'^\W*{re.escape(self.package)}(?:==|": ")([^"\s]+)'
        found = re.search(pin, pins.read_text(), re.MULTILINE)
        assert found is not None, f"{pins} does not pin {self.package}"
        return found[1]


PYTHON_CLIENTS = (
    Client("openai", "openai (Python)", "openai"),
    Client("langchain", "LangChain's standard suite, ChatOpenAI", "langchain-openai"),
    Client("litellm", "LiteLLM, client and proxy", "litellm"),
    Client("instructor", "instructor", "instructor"),
    Client("pydantic_ai", "Pydantic AI", "pydantic-ai-slim"),
    Client("schemathesis", "schemathesis", "schemathesis"),
    Client("guidellm", "GuideLLM", "guidellm"),
)
NODE_CLIENTS = (
    Client("openai_node", "openai (npm)", "openai", node=True),
    Client("ai_sdk", "Vercel AI SDK, @ai-sdk/openai-compatible", "ai", node=True),
)


def main(names: Sequence[str]) -> int:
    clients = [*PYTHON_CLIENTS, *NODE_CLIENTS]
    chosen = [client for client in clients if not names or client.name in names]
    with running() as url:
        results = [Result(client.title, client.version, run(client, url)) for client in chosen]
    text = page(results)
    if names:
        print(text)
    else:
        PAGE.write_text(text)
    return int(any(result.of("failed") for result in results))


def run(client: Client, url: str) -> list[Outcome]:
    """Its tests. One that cannot be installed or run has failed as a whole."""
    print(f"conformance: {client.title}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="starsd-conformance-") as folder:
        junit = Path(folder) / "junit.xml"
        try:
            command, where = (_node if client.node else _python)(client, junit)
            environment = {**os.environ, "CONFORMANCE_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}
            subprocess.run(command, cwd=where, env=environment, timeout=RUN_S, check=False)
            return read(junit)
        except (OSError, subprocess.SubprocessError, SyntaxError) as error:
            return [Outcome("all of it", "failed", str(error))]


def _python(client: Client, junit: Path) -> tuple[list[str], Path]:
    pytest = str(python_environment(client.name) / "pytest")
    script, config = CLIENTS / f"check_{client.name}.py", CLIENTS / "pytest.ini"
    options = [
        "-c",
        str(config),
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "--tb=short",
        f"--junitxml={junit}",
    ]
    return [pytest, *options, str(script)], ROOT


def _node(client: Client, junit: Path) -> tuple[list[str], Path]:
    node = str(python_environment("node") / "node")
    reporter = ["--test-reporter=junit", f"--test-reporter-destination={junit}"]
    return [node, "--test", *reporter, f"check_{client.name}.mjs"], node_environment()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
