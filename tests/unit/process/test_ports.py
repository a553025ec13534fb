"""Free ports, and ports that are not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from starsd.errors import ConfigError
from starsd.process import ports
from starsd.process.ports import choose_port, free_ports, is_free

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_free_ports_are_free_and_different() -> None:
    found = free_ports(20, HOST)
    assert len(set(found)) == 20
    assert all(is_free(HOST, port) for port in found)


def test_a_port_given_before_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (given,) = free_ports(1, HOST)
    for bound in ("FIRST", "LAST"):
        monkeypatch.setattr(ports, bound, given)
    assert free_ports(1, HOST) == [given]
    with pytest.raises(ConfigError, match="no free port"):
        free_ports(1, HOST, [given])


def test_no_outgoing_connection_takes_them() -> None:
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest, highest = map(int, text.split())
    assert not any(lowest <= port <= highest for port in free_ports(20, HOST))


def test_no_port_where_nobody_can_listen() -> None:
    with pytest.raises(ConfigError, match=r"no free port on 192\.0\.2\.1"):
        free_ports(1, "192.0.2.1")


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
