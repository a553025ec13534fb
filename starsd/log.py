"""structlog, set up once per process."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog


def configure_logging(service: str, level: str, *, as_json: bool) -> None:
    """Log lines of this process, to stderr, each naming its service."""
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


class Seldom:
    """Lines of one kind that others can cause: at most one in ``every_s`` seconds, which tells how
    many were left out since the last."""

    def __init__(self, every_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next = float("-inf")
        self._left_out = 0

    def __call__(self, write: Callable[..., Any], event: str, **facts: object) -> None:
        """``write`` is a logger's method."""
        if self._clock() < self._next:
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        self._next, self._left_out = self._clock() + self._every_s, 0
        write(event, **facts, **more)


@contextmanager
def only_warnings() -> Iterator[None]:
    """Log lines of this process meanwhile: warnings and worse, to stderr, for commands that run the
    engine themselves."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)
