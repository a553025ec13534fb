"""A step loop's process: where it runs, and how bad cores are told."""

from __future__ import annotations

import gc
import os
import socket
from types import SimpleNamespace

import pytest

from starsd.errors import ConfigError, StarsdError
from starsd.process import spawn
from starsd.process.handle import LoopHandle
from starsd.process.spawn import parse_cores, run_loop, spawn_loop
from starsd.settings.common import ServiceSettings


def tell_cores(_: None, sock: socket.socket) -> None:
    """A loop that only says where it runs."""
    sock.sendall(repr(sorted(os.sched_getaffinity(0))).encode())


def cores_of(cores: str) -> str:
    loop = spawn_loop(tell_cores, None, cores)
    try:
        loop.socket.settimeout(60)
        return loop.socket.recv(4096).decode()
    finally:
        loop.stop()
        loop.socket.close()


def test_cores_pin_the_loop_alone() -> None:
    ours = sorted(os.sched_getaffinity(0))
    assert cores_of("") == repr(ours)
    assert cores_of(str(ours[-1])) == repr(ours[-1:])
    assert sorted(os.sched_getaffinity(0)) == ours


async def test_cores_that_cannot_be_had_are_told_to_the_front() -> None:
    handle = LoopHandle(spawn_loop(tell_cores, None, "9999"), print, print)
    try:
        with pytest.raises(StarsdError, match="STARSD_CORES='9999': allowed here are"):
            await handle.start(60)
    finally:
        await handle.stop()


@pytest.mark.parametrize(
    ("cores", "chosen"), [("0", {0}), ("0,2-3", {0, 2, 3}), ("5-5", {5}), ("1,1", {1})]
)
def test_a_list_of_cores(cores: str, chosen: set[int]) -> None:
    assert parse_cores(cores) == chosen


@pytest.mark.parametrize("cores", [",", "1,", "-", "2-", "-1", "1-2-3", "3-2", "0,3-2"])
def test_a_bad_list_is_named(cores: str) -> None:
    with pytest.raises(ConfigError, match="write it like 0 or 2-3"):
        parse_cores(cores)


def test_what_loading_made_is_never_collected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = []
    ran = SimpleNamespace(run=lambda: frozen.append(gc.get_freeze_count()))
    monkeypatch.setattr(spawn, "configure_logging", lambda *_, **__: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            run_loop("some", lambda *_: ran, ServiceSettings(), theirs)
        finally:
            gc.unfreeze()
    assert frozen[0] > 1000
