"""A descriptor that another thread can make readable."""

from __future__ import annotations

import contextlib
import socket

from starsd.bus.waiting import wait_readable


class Bell:
    """Rung any number of times, it is readable until cleared."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._theirs.send(b"!")

    def wait(self, timeout_s: float) -> None:
        wait_readable([self.fileno()], timeout_s)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._ours.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
