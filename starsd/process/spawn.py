"""Starting a step loop in a process of its own, joined to its front by a socketpair."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Protocol, TypeVar

from starsd.errors import ConfigError, StarsdError
from starsd.log import configure_logging
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import Failed, ToLoop
from starsd.settings.common import ServiceSettings

Settings = TypeVar("Settings")
Options = TypeVar("Options", bound=ServiceSettings)

STOP_GRACE_S = 5.0
HEAP_KEPT_BYTES = 100_000_000
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""From glibc's malloc.h."""


class Loop(Protocol):
    """What a loop's process runs."""

    def run(self) -> None: ...


class LoopProcess:
    """A spawned step loop; ``socket`` is the front's end of the pair."""

    def __init__(self, process: BaseProcess, sock: socket.socket) -> None:
        self._process = process
        self.socket = sock

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Wait for the loop to end by itself, then SIGTERM, then SIGKILL; each with a deadline."""
        self._process.join(grace_s)
        for end in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                end()
                self._process.join(grace_s)


def spawn_loop(
    main: Callable[[Settings, socket.socket], None], settings: Settings, cores: str
) -> LoopProcess:
    """Run ``main(settings, socket)`` in a fresh interpreter pinned to ``cores``.

    Cores that cannot be had are reported to the front as Failed.
    Spawned, not forked: the front runs threads and an event loop, and torch must not be forked.
    """
    ours, theirs = socket.socketpair()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_run, args=(main, settings, theirs, cores), daemon=True)
    process.start()
    theirs.close()
    return LoopProcess(process, ours)


def _run(
    main: Callable[[Settings, socket.socket], None],
    settings: Settings,
    sock: socket.socket,
    cores: str,
) -> None:
    # Ctrl-C goes to the whole process group; the front alone decides when the loop ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_heap()
    with contextlib.closing(sock):
        try:
            pin(cores)
        except ConfigError as error:
            channel: LoopChannel[ToLoop] = LoopChannel(sock, ToLoop)
            channel.send(Failed(id=None, error=error.body()))
        else:
            main(settings, sock)


def run_loop(
    name: str,
    build: Callable[[Options, LoopChannel[ToLoop]], Loop],
    settings: Options,
    sock: socket.socket,
) -> None:
    """Build a step loop, report Failed if that raises StarsdError, and run it until it ends.

    What loading made is there for good, so no garbage collection looks at it again: a full one
    took 43 ms with all that is imported, three steps of the default model.
    """
    configure_logging(f"{name}-loop", settings.log_level, as_json=settings.log_json)
    channel: LoopChannel[ToLoop] = LoopChannel(sock, ToLoop)
    try:
        loop = build(settings, channel)
    except StarsdError as error:
        channel.send(Failed(id=None, error=error.body()))
        return
    gc.collect()
    gc.freeze()
    loop.run()


def keep_heap() -> None:
    """Let glibc keep freed memory up to 100 MB instead of handing it back to the kernel.

    Steps allocate and free the same few hundred KB again and again; the page faults alone made
    sampling over 49,152 logits more than twice as slow.
    """
    if sys.platform == "linux" and (libc := ctypes.CDLL(None)) and hasattr(libc, "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_BYTES)
        libc.mallopt(M_MMAP_THRESHOLD, HEAP_KEPT_BYTES)


def pin(cores: str) -> None:
    """Pin this process to a core list like ``0,2-3``; empty leaves it alone.

    Raises:
        ConfigError: the list names a core that this process may not use.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, parse_cores(cores))
    except OSError as error:
        allowed = sorted(os.sched_getaffinity(0))
        raise ConfigError(f"STARSD_CORES={cores!r}: allowed here are {allowed}") from error


def parse_cores(cores: str) -> set[int]:
    """``0,2-3`` to {0, 2, 3}. Raises ConfigError."""
    chosen: set[int] = set()
    for part in cores.split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
            if low > high:
                raise ValueError(part)
            chosen.update(range(low, high + 1))
        except ValueError as error:
            raise ConfigError(f"STARSD_CORES={cores!r}: write it like 0 or 2-3") from error
    return chosen
