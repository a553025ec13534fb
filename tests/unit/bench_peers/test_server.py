from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from starsd.bench.peers.server import pinned
from starsd.errors import ConfigError, DeadlineError, UnavailableError
from tests.unit.bench_peers.support import CORE, START_S, process, running, server


def state(pid: int) -> str:
    """The kernel's letter: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(pid: int, letters: str) -> bool:
    deadline = time.monotonic() + 5
    while state(pid) not in letters:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_peer_runs_on_its_cores_alone_and_ours_are_as_before(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with running(tmp_path) as peer:
        assert os.sched_getaffinity(peer.groups[0]) == {CORE}
        assert os.sched_getaffinity(0) == before


def test_a_peer_does_not_see_our_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("OTHERS", "stay")
    with running(tmp_path) as peer:
        variables = Path(f"/proc/{peer.groups[0]}/environ").read_text().split("\0")
    assert "OTHERS=stay" in variables
    assert not any(variable.startswith("PYTHONPATH=") for variable in variables)


def test_only_its_turn_wakes_it(tmp_path: Path) -> None:
    with running(tmp_path) as peer:
        peer.sleep()
        assert until(peer.groups[0], "T")
        with peer.awake(5.0):
            assert state(peer.groups[0]) != "T"
            assert peer.ready()
        assert until(peer.groups[0], "T")
        peer.resume()
        assert until(peer.groups[0], "SR")


def test_one_that_does_not_wake_is_late_and_sleeps_again(tmp_path: Path) -> None:
    peer = process(tmp_path)
    with peer.running([CORE], START_S) as group:
        deaf = server(peer, group)
        object.__setattr__(deaf, "ready", lambda: False)
        with pytest.raises(DeadlineError, match="peer is not ready"), deaf.awake(0.2):
            pytest.fail("it is not ready")
        assert until(group, "T")


def test_even_a_sleeping_one_ends(tmp_path: Path) -> None:
    with running(tmp_path) as peer:
        peer.sleep()
    with pytest.raises(ProcessLookupError):
        os.killpg(peer.groups[0], 0)


@pytest.mark.parametrize(
    ("code", "match"),
    [
        ("raise SystemExit('no such weights')", "peer ended with 1: no such weights"),
        ("import os; os.abort()", "peer ended with SIGABRT"),
    ],
)
def test_one_that_ends_at_start_says_how(tmp_path: Path, code: str, match: str) -> None:
    broken = process(tmp_path, sys.executable, "-c", code)
    with (
        pytest.raises(UnavailableError, match=match),
        broken.running([CORE], START_S),
    ):
        pytest.fail("it has ended")


def test_one_that_is_late_at_start_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    late = process(tmp_path, sys.executable, "-c", code)
    with pytest.raises(DeadlineError, match="peer is not ready"), late.running([CORE], 1.0):
        pytest.fail("it does not listen")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_cores_that_cannot_be_had_are_named() -> None:
    with pytest.raises(ConfigError, match=r"cores \[4095\]: allowed here are"), pinned([4095]):
        pytest.fail("there are not so many")
