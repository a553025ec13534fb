"""A service that is still importing ends on SIGTERM, also as a container's first process."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.livestar import DEADLINE_S, eventually


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own; a first process ends by no other."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt:")
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("kind", ["gateway", "target", "draft"])
def test_sigterm_ends_a_service_that_imports(kind: str) -> None:
    process = subprocess.Popen([sys.executable, "-m", f"services.{kind}"])
    try:
        eventually(partial(catches, process.pid, signal.SIGTERM), "it has a handler")
        process.terminate()
        assert process.wait(DEADLINE_S) == 143
    finally:
        process.kill()
        process.wait()
