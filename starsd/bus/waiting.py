"""Waiting for descriptors; ``select.poll``, since ``select.select`` ends at descriptor 1023."""

from __future__ import annotations

import select
import time
from collections.abc import Iterable


def wait_readable(filenos: Iterable[int], timeout_s: float) -> None:
    """Wait up to ``timeout_s`` seconds until one can be read; without any, just wait."""
    poller = select.poll()
    for fileno in (descriptors := list(filenos)):
        poller.register(fileno, select.POLLIN)
    if descriptors:
        poller.poll(max(0.0, timeout_s) * 1000)
    elif timeout_s > 0:
        time.sleep(timeout_s)
