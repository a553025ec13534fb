from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import hiredis
import pytest

from starsd.bus import link as link_module
from starsd.bus.address import Address
from starsd.bus.link import BACKOFF_MOST_S, CONNECT_S, PING_AFTER_S, SILENCE_S, Link, Reply
from starsd.process.ports import free_ports
from tests.unit.bus.fake_server import Clock, FakeServer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    fake = FakeServer(tmp_path)
    yield fake
    fake.close()


@pytest.fixture
def make(clock: Clock) -> Iterator[Callable[[Address], Link]]:
    made: list[Link] = []

    def build(address: Address) -> Link:
        made.append(Link(address, lambda: None, clock=clock))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def link(server: FakeServer, make: Callable[[Address], Link]) -> Link:
    one = make(server.address)
    server.welcome(one)
    return one


def test_it_greets_with_credentials_and_database_first(
    server: FakeServer, make: Callable[[Address], Link]
) -> None:
    address = replace(server.address, username="u", password="p w", database=3)
    link = make(address)
    link.poll()
    server.accept()
    link.poll()
    assert server.commands() == [["AUTH", "u", "p w"], ["SELECT", "3"], ["PING"]]
    server.answer(b"+OK\r\n+OK\r\n")
    link.poll()
    assert not link.up
    server.answer(b"+PONG\r\n")
    link.poll()
    assert (link.up, link.ups) == (True, 1)


@pytest.mark.parametrize(
    "answer", [b"-WRONGPASS no\r\n", b"-LOADING wait\r\n", b"HTTP/1.1 400\r\n"]
)
def test_a_server_that_does_not_welcome_is_left(
    answer: bytes, server: FakeServer, make: Callable[[Address], Link]
) -> None:
    link = make(server.address)
    link.poll()
    server.accept()
    link.poll()
    server.answer(answer)
    link.poll()
    assert not link.up
    assert link.filenos() == []


def test_on_up_runs_before_anything_else_each_time(server: FakeServer, clock: Clock) -> None:
    def set_up() -> None:
        one.command("SETUP")

    one = Link(server.address, set_up, clock=clock)
    for ups in (1, 2):
        server.welcome(one)
        assert one.ups == ups
        assert server.commands() == [["SETUP"]]
        server.hang_up()
        one.poll()
        assert not one.up
        clock.now += 2
    one.close()


def test_commands_go_out_in_one_write_and_replies_come_back_in_order(
    server: FakeServer, link: Link
) -> None:
    got: list[Reply] = []
    for number in range(50):
        assert link.command("GET", number, b"\x00\xff", then=got.append)
    link.flush()
    found = server._peer.recv(1 << 20)  # type: ignore[union-attr]
    assert found.count(b"GET") == 50
    server.answer(b"".join(b":%d\r\n" % number for number in range(49)) + b"$2\r\nx")
    link.poll()
    assert got == list(range(49))
    server.answer(b"y\r\n")
    link.poll()
    assert got[-1] == b"xy"


def test_error_replies_are_given_or_logged_and_the_link_lives(
    server: FakeServer, link: Link, capsys: pytest.CaptureFixture[str]
) -> None:
    got: list[Reply] = []
    link.command("A", then=got.append)
    link.command("B")
    link.flush()
    server.answer(b"-NOGROUP none\r\n-OOM full\r\n")
    link.poll()
    assert [type(one) for one in got] == [hiredis.ReplyError]
    assert "OOM full" in capsys.readouterr().out
    assert link.up


@pytest.mark.parametrize(
    "data",
    [b"-READONLY replica\r\n", b"-NOREPLICAS few\r\n", b"+OK\r\n+more\r\n", b"nonsense\r\n"],
)
def test_an_unfit_or_confused_server_is_left(data: bytes, server: FakeServer, link: Link) -> None:
    link.command("A")
    link.flush()
    server.answer(data)
    link.poll()
    assert not link.up
    assert not link.command("B")


def test_a_closed_connection_drops_what_waits_for_a_reply(server: FakeServer, link: Link) -> None:
    got: list[Reply] = []
    link.command("A", then=got.append)
    link.flush()
    server.hang_up()
    link.poll()
    assert (link.up, got) == (False, [])
    link.flush()  # harmless


def test_a_quiet_peer_is_pinged_and_a_silent_one_given_up(
    server: FakeServer, link: Link, clock: Clock
) -> None:
    clock.now += PING_AFTER_S + 0.1
    link.poll()
    assert server.commands() == [["PING"]]
    clock.now += SILENCE_S - 0.1
    link.poll()
    assert link.up
    clock.now += 0.2
    link.poll()
    assert not link.up


def test_sending_does_not_hide_a_silent_peer(link: Link, clock: Clock) -> None:
    for _ in range(5):
        link.command("XADD")
        link.flush()
        clock.now += SILENCE_S / 4
        link.poll()
    assert not link.up


def test_a_stalled_owner_does_not_take_its_peer_for_dead(
    server: FakeServer, link: Link, clock: Clock
) -> None:
    got: list[Reply] = []
    link.command("A", then=got.append)
    link.flush()
    server.answer(b":1\r\n")
    clock.now += 60
    link.poll()
    assert (link.up, got) == (True, [1])
    link.command("B", then=got.append)
    clock.now += 60
    link.poll()
    assert link.up, "unsent commands are no debt of the peer's"


def test_a_peer_that_does_not_read_is_given_up(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_UNSENT_BYTES", 1 << 20)
    sent = 0
    while link.command("SET", b"x" * 65536):
        link.flush()
        sent += 1
        assert sent < 1000
    assert not link.up


def retries(link: Link, clock: Clock, seconds: float) -> list[float]:
    """Times at which the link dials, seen by its look-ups."""
    times: list[float] = []
    end = clock.now + seconds
    while clock.now < end:
        before = link._failures
        link.poll()
        times += [clock.now] if link._failures > before else []
        clock.now += 0.005
    return times


def test_retries_back_off_with_jitter_to_a_bound(
    tmp_path: Path, make: Callable[[Address], Link], clock: Clock
) -> None:
    times = retries(make(Address(path=str(tmp_path / "nobody"))), clock, 30)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] < 0.1
    assert max(gaps) <= BACKOFF_MOST_S + 0.01
    settled = gaps[8:]
    assert min(settled) >= BACKOFF_MOST_S / 2
    assert len({round(gap, 2) for gap in settled}) > 3


def test_a_host_name_is_looked_up_and_each_address_tried(
    make: Callable[[Address], Link], clock: Clock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        link = make(Address(host="localhost", port=listener.getsockname()[1]))
        while not link.filenos():
            link.poll()
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"+PONG\r\n")
            while not link.up:
                link.poll()
        assert link.ups == 1


def test_an_unknown_or_deaf_host_only_costs_a_retry(
    make: Callable[[Address], Link], clock: Clock
) -> None:
    for host, port in (("name.invalid", 1), ("127.0.0.1", free_ports(1, "127.0.0.1")[0])):
        link = make(Address(host=host, port=port))
        while not link._failures:
            link.poll()
        assert not link.up


def test_an_attempt_has_a_deadline(
    server: FakeServer, make: Callable[[Address], Link], clock: Clock
) -> None:
    link = make(server.address)
    link.poll()
    link.poll()
    clock.now += CONNECT_S + 0.1
    link.poll()
    assert link._failures == 1


def test_drain_ends_with_the_last_reply_or_the_time(server: FakeServer) -> None:
    link = Link(server.address, lambda: None)
    server.welcome(link)
    got: list[Reply] = []
    link.command("A", then=got.append)
    server.answer(b":1\r\n")
    link.drain(5)
    assert got == [1]
    link.command("B", then=got.append)
    link.drain(0.05)
    assert (got, link.up) == ([1], True)
    link.close()
    link.poll()
    assert not link.up
