from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from starsd.bench.scale.delay import Delay
from starsd.errors import ConfigError


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that sends everything back, one connection after the other."""
    path = tmp_path / "echo.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield f"unix://{path}"


def _serve(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)


def trip(client: socket.socket, data: bytes) -> float:
    begin = time.perf_counter()
    client.sendall(data)
    found = b""
    while len(found) < len(data):
        found += client.recv(65536)
    assert found == data
    return time.perf_counter() - begin


def connect(way: Delay) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(30)
    client.connect(way.url.removeprefix("unix://"))
    return client


def test_everything_comes_through_and_late(echo: str) -> None:
    with Delay(echo) as way, connect(way) as client:
        trip(client, b"PING")
        trip(client, bytes(300_000))
        way.seconds = 0.05
        assert trip(client, b"late") >= 0.0999
        assert trip(client, bytes(300_000)) >= 0.0999
        way.seconds = 0.0
        trip(client, b"PING")


def test_an_end_passes_through(echo: str) -> None:
    with Delay(echo) as way:
        with connect(way) as client:
            trip(client, b"PING")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        with connect(way) as again:
            trip(again, b"PING")


def test_its_end_ends_its_connections(echo: str) -> None:
    with Delay(echo) as way:
        client = connect(way)
        trip(client, b"PING")
    with client:
        assert client.recv(1) == b""
    assert not Path(way.url.removeprefix("unix://")).exists()


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with Delay(f"unix://{tmp_path}/absent.sock") as way, connect(way) as client:
        assert client.recv(1) == b""


def test_only_unix_sockets() -> None:
    with pytest.raises(ConfigError, match="want a unix:// URL"):
        Delay("redis://127.0.0.1:6379")
