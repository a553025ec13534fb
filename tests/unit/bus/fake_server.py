"""A scripted Redis in the test's own thread, and a clock that only the test moves."""

from __future__ import annotations

import socket
from pathlib import Path

import hiredis

from starsd.bus.address import Address
from starsd.bus.link import Link


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeServer:
    """Listens on a unix socket; the test accepts, reads and answers by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "fake.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(5)
        self._peer: socket.socket | None = None

    @property
    def address(self) -> Address:
        return Address(path=self.path)

    def accept(self) -> None:
        self.hang_up()
        self._peer, _ = self._listener.accept()
        self._peer.settimeout(5)

    def commands(self) -> list[list[str]]:
        """What one read of the socket brings."""
        assert self._peer is not None
        reader = hiredis.Reader()
        reader.feed(self._peer.recv(1 << 20))
        return [[part.decode() for part in command] for command in iter(reader.gets, False)]

    def answer(self, data: bytes) -> None:
        assert self._peer is not None
        self._peer.sendall(data)

    def hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def welcome(self, link: Link) -> None:
        """Take the link's next connection and let it come up."""
        link.poll()
        self.accept()
        link.poll()
        self.commands()
        self.answer(b"+PONG\r\n")
        link.poll()
        assert link.up

    def close(self) -> None:
        self.hang_up()
        self._listener.close()
