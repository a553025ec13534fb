"""A server under test: its processes pinned, asleep but for its turns, and certainly gone at the
end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from starsd.bench.peers.envs import outside
from starsd.errors import ConfigError, DeadlineError, UnavailableError
from starsd.process import leash

LOCAL = "127.0.0.1"
POLL_S = 0.1
STOP_S = 20.0


@dataclass(frozen=True)
class Server:
    """Something that speaks the OpenAI chat API at ``url``.

    ``groups`` are its process groups. ``pair`` is the precision of ours that a peer is compared
    with; empty for our own.
    """

    name: str
    url: str
    model: str
    precision: str
    pair: str
    groups: tuple[int, ...]
    ready: Callable[[], bool]

    def sleep(self) -> None:
        """Stop all its threads: several servers poll while they have nothing to do."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    @contextmanager
    def awake(self, timeout_s: float) -> Iterator[None]:
        """Its turn: resumed, ready, and put back to sleep. Raises DeadlineError."""
        self.resume()
        try:
            self._wait_ready(timeout_s)
            yield
        finally:
            self.sleep()

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if time.monotonic() > deadline:
                raise DeadlineError(f"{self.name} is not ready {timeout_s:.0f} s after its sleep")
            time.sleep(POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, number)


@dataclass(frozen=True)
class Process:
    """A peer's server: what to run, and where it then is."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://{LOCAL}:{self.port}"

    @contextmanager
    def running(self, cores: Sequence[int], timeout_s: float) -> Iterator[int]:
        """Start it on ``cores`` and wait until it serves; gives its process group.

        Raises:
            UnavailableError: it ended. Shows its log.
            DeadlineError: it is late. Shows its log.
        """
        lead = (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()))
        with pinned(cores), self.log.open("wb") as log:
            child = subprocess.Popen(
                [*lead, *self.command],
                env={**outside(), **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_ready(child, timeout_s)
            yield child.pid
        finally:
            _end(child)

    def ready(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).is_success
        return False

    def _wait_ready(self, child: subprocess.Popen[bytes], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if child.poll() is not None:
                how = _how_it_ended(child.returncode)
                raise UnavailableError(f"{self.name} ended with {how}: {self._said()}")
            if time.monotonic() > deadline:
                raise DeadlineError(f"{self.name} is not ready after {timeout_s:.0f} s")
            time.sleep(POLL_S)

    def _said(self, count: int = 8) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def _how_it_ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)


def _end(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the awake group, SIGKILL to what is left of it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
    with suppress(subprocess.TimeoutExpired):
        child.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(STOP_S)


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """This thread, and whatever it starts meanwhile, on these cores.

    Raises:
        ConfigError: they cannot be had.
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        message = f"cores {list(cores)}: allowed here are {sorted(before)}"
        raise ConfigError(message, param="--cores") from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
