"""A service that is still importing ends on SIGTERM, also as a container's first process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEADLINE_S = 60.0


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
        deadline = time.monotonic() + DEADLINE_S
        while not catches(process.pid, signal.SIGTERM):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.terminate()
        assert process.wait(DEADLINE_S) == 143
    finally:
        process.kill()
        process.wait()
