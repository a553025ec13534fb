"""The supervisor over real processes: stand-ins that obey, refuse, die, or leave children."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from starsd.cli.supervisor import LINE_BYTES, Child, Patience, Supervisor, exit_words

SOON = Patience(first_delay_s=0.01, longest_delay_s=0.04, quick_deaths=3, grace_s=5.0)
DEADLINE_S = 20.0

OBEYS = "import os, signal; print('pid', os.getpid(), flush=True); signal.pause()"
REFUSES = (
    "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('pid', os.getpid(), flush=True)\nwhile True: signal.pause()"
)
DIES = (
    "import os; print('pid', os.getpid(), flush=True); print('no model', flush=True); os._exit(7)"
)
LEAVES_A_CHILD = (
    "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'],"
    "stdin=subprocess.PIPE); print('pid', p.pid, flush=True); import signal; signal.pause()"
)


def child(name: str, script: str) -> Child:
    return Child(name, (sys.executable, "-S", "-c", script), dict(os.environ))


@dataclass
class Seen:
    """Lines shown, and who waits for more."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self.news.set()

    def pids(self, name: str = "") -> list[int]:
        found = [(who, line) for who, line in self.lines if line.startswith("pid ")]
        return [int(line.split()[1]) for who, line in found if not name or who == name]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await self.news.wait()
                self.news.clear()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def soon_gone(pids: list[int]) -> bool:
    """For those whose end nobody here awaits: a killed process takes a moment to go."""
    deadline = time.monotonic() + DEADLINE_S
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return all(map(gone, pids))


async def test_all_children_end_when_told() -> None:
    seen, stop = Seen(), asyncio.Event()
    children = [child("a", OBEYS), child("b", OBEYS), child("redis", OBEYS)]
    running = asyncio.create_task(Supervisor(children, seen.show, SOON).run(stop))
    await seen.until(lambda: len(seen.pids()) == 3)
    stop.set()
    assert await running is None
    assert all(map(gone, seen.pids()))


async def test_a_child_that_refuses_to_end_is_killed() -> None:
    seen, stop = Seen(), asyncio.Event()
    children = [child("a", OBEYS), child("stubborn", REFUSES)]
    patience = replace(SOON, grace_s=0.2)
    running = asyncio.create_task(Supervisor(children, seen.show, patience).run(stop))
    await seen.until(lambda: len(seen.pids()) == 2)
    stop.set()
    assert await running is None
    assert all(map(gone, seen.pids()))


async def test_what_others_need_ends_last() -> None:
    goodbye = (
        "import os, signal; end = lambda *_: (print('bye', flush=True), os._exit(0));"
        "signal.signal(signal.SIGTERM, end); print('pid', os.getpid(), flush=True)\n"
        "while True: signal.pause()"
    )
    seen, stop = Seen(), asyncio.Event()
    children = [replace(child("redis", goodbye), stops_last=True), child("a", goodbye)]
    running = asyncio.create_task(Supervisor(children, seen.show, SOON).run(stop))
    await seen.until(lambda: len(seen.pids()) == 2)
    stop.set()
    await running
    assert [name for name, line in seen.lines if line == "bye"] == ["a", "redis"]


async def test_a_dead_child_starts_again_and_the_others_stay() -> None:
    seen, stop = Seen(), asyncio.Event()
    children = [child("a", OBEYS), child("b", OBEYS)]
    running = asyncio.create_task(Supervisor(children, seen.show, SOON).run(stop))
    await seen.until(lambda: len(seen.pids()) == 2)
    os.kill(seen.pids("a")[0], signal.SIGKILL)
    await seen.until(lambda: len(seen.pids("a")) == 2)
    assert ("a", "ended (SIGKILL); again in 0.01 s") in seen.lines
    assert not gone(seen.pids("b")[0])
    stop.set()
    await running
    assert len(seen.pids("b")) == 1


async def test_a_child_that_keeps_dying_ends_the_star_with_its_last_lines() -> None:
    seen = Seen()
    children = [child("a", OBEYS), child("broken", DIES)]
    reason = await Supervisor(children, seen.show, SOON).run(asyncio.Event())
    assert reason is not None
    assert "broken ended 3 times in a row, at last with exit code 7" in reason
    assert "no model" in reason
    assert len(seen.pids("broken")) == 3
    assert all(map(gone, seen.pids()))


async def test_a_long_life_clears_the_count() -> None:
    seen, stop = Seen(), asyncio.Event()
    forgiving = replace(SOON, quick_s=0.0)
    running = asyncio.create_task(Supervisor([child("a", DIES)], seen.show, forgiving).run(stop))
    await seen.until(lambda: len(seen.pids()) > SOON.quick_deaths)
    stop.set()
    assert await running is None


async def test_what_a_dead_child_leaves_is_ended_too() -> None:
    seen, stop = Seen(), asyncio.Event()
    script = LEAVES_A_CHILD.replace("import signal; signal.pause()", "import os; os._exit(1)")
    running = asyncio.create_task(Supervisor([child("a", script)], seen.show, SOON).run(stop))
    assert await running is not None
    assert len(seen.pids()) == SOON.quick_deaths
    assert soon_gone(seen.pids())


async def test_stopping_kills_grandchildren() -> None:
    seen, stop = Seen(), asyncio.Event()
    running = asyncio.create_task(
        Supervisor([child("a", LEAVES_A_CHILD)], seen.show, SOON).run(stop)
    )
    await seen.until(lambda: len(seen.pids()) == 1)
    stop.set()
    await running
    assert soon_gone(seen.pids())


async def test_an_endless_line_is_shown_in_bounded_pieces() -> None:
    seen, stop = Seen(), asyncio.Event()
    script = f"print('x' * {5 * LINE_BYTES}); print('end', flush=True); input()"
    supervisor = Supervisor([child("a", script)], seen.show, replace(SOON, quick_deaths=1))
    await supervisor.run(stop)
    pieces = [line for _, line in seen.lines if line.startswith("x")]
    assert sum(map(len, pieces)) == 5 * LINE_BYTES
    assert max(map(len, pieces)) <= 2 * LINE_BYTES


def test_delays_grow_to_a_bound() -> None:
    patience = Patience(first_delay_s=0.5, longest_delay_s=3.0)
    assert [patience.delay_s(deaths) for deaths in (1, 2, 3, 4, 40)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_exit_words() -> None:
    assert [exit_words(3), exit_words(-9)] == ["exit code 3", "SIGKILL"]


SUPERVISE = """
import asyncio, os, sys
from starsd.cli.supervisor import Child, Patience, Supervisor
from starsd.service import stop_on_signal
scripts = sys.argv[1:]
env = dict(os.environ)
children = [Child(f"c{i}", (sys.executable, "-S", "-c", s), env) for i, s in enumerate(scripts)]
async def main():
    with stop_on_signal() as stop:
        show = lambda name, line: print(name, line, flush=True)
        await Supervisor(children, show, Patience(grace_s=0.3)).run(stop)
asyncio.run(main())
"""


def supervise(*scripts: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A supervisor in a process of its own, and the pids of its children once all run."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, *scripts], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids: list[int] = []
    while len(pids) < len(scripts):
        line = process.stdout.readline()
        assert line, "the supervisor ended early"
        pids.append(int(line.split()[2]))
    return process, pids


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_supervisor_ends_everyone(number: signal.Signals) -> None:
    process, pids = supervise(OBEYS, REFUSES)
    with process:
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0
    assert all(map(gone, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_killed_supervisor_leaves_nobody() -> None:
    process, pids = supervise(OBEYS, REFUSES)
    with process:
        process.kill()
        process.wait(DEADLINE_S)
    assert soon_gone(pids)


def test_a_leash_without_its_parent_starts_nothing(tmp_path: Path) -> None:
    from starsd.process import leash

    mark = tmp_path / "started"
    command = [sys.executable, "-I", "-S", leash.__file__, "1", "touch", str(mark)]
    assert subprocess.run(command, timeout=DEADLINE_S, check=False).returncode == 1
    assert not mark.exists()
