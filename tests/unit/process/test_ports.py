"""Free ports, and ports that are not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from starsd.errors import ConfigError
from starsd.process.ports import choose_port, free_ports, is_free

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(20, HOST)
    assert len(set(ports)) == 20
    assert all(is_free(HOST, port) for port in ports)


def test_a_free_port_is_taken_as_wanted() -> None:
    (port,) = free_ports(1, HOST)
    assert choose_port(HOST, port, insist=True) == port


def test_a_default_gives_way(taken: int) -> None:
    assert choose_port(HOST, taken, insist=False) not in (0, taken)


def test_a_port_asked_for_does_not_give_way(taken: int) -> None:
    with pytest.raises(ConfigError, match=f"port {taken} is taken on {HOST}"):
        choose_port(HOST, taken, insist=True)


def test_zero_takes_any() -> None:
    assert choose_port(HOST, 0, insist=True) > 0
