"""Ending on SIGTERM before anything listens for it: imports take a second or more."""

from __future__ import annotations

import signal
import sys

STOPPED = 143
"""Exit code of whoever was ended by SIGTERM, as shells have it."""


def end_on_sigterm() -> None:
    """Until it listens itself: a container's first process is deaf to SIGTERM otherwise."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))
