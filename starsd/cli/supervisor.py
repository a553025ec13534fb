"""Child processes kept alive, their output shown line by line, and all of them ended for sure."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from starsd.process import leash

LINE_BYTES = 16 * 1024
"""Longer output lines are shown in pieces."""
LAST_LINES = 15
DRAIN_S = 1.0
"""Longest wait for the rest of a dead child's output."""


@dataclass(frozen=True)
class Child:
    """One process of the star. ``env`` is its whole environment."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    stops_last: bool = False
    """The others still need it while they end (Redis)."""


@dataclass(frozen=True)
class Patience:
    """How deaths are answered. Delays in seconds."""

    first_delay_s: float = 0.5
    longest_delay_s: float = 10.0
    quick_s: float = 30.0
    """A life shorter than this was a quick death; a longer one clears the count."""
    quick_deaths: int = 5
    """So many in a row end the star."""
    grace_s: float = 15.0
    """From SIGTERM to SIGKILL."""

    def delay_s(self, deaths: int) -> float:
        """Pause before the restart that follows the ``deaths``-th quick death in a row."""
        return min(self.longest_delay_s, self.first_delay_s * 2.0 ** max(0, deaths - 1))


Show = Callable[[str, str], None]
"""Called with a child's name and one line: of its output, or about it."""


class Supervisor:
    """Runs children until told to stop, or until one keeps dying."""

    def __init__(self, children: Sequence[Child], show: Show, patience: Patience) -> None:
        self._stopping = asyncio.Event()
        self._patience = patience
        self._keepers = [_Keeper(child, show, patience, self._stopping) for child in children]

    async def run(self, stop: asyncio.Event) -> str | None:
        """Every child has ended when this returns: None after ``stop``, else why it gave up."""
        tasks = {asyncio.create_task(keeper.keep()): keeper for keeper in self._keepers}
        told = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([*tasks, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stopping.set()
            told.cancel()
            await self._end({t: k for t, k in tasks.items() if not k.child.stops_last})
            await self._end({t: k for t, k in tasks.items() if k.child.stops_last})
        return next((reason for task in tasks if (reason := task.result())), None)

    async def _end(self, tasks: Mapping[asyncio.Task[str | None], _Keeper]) -> None:
        if not tasks:
            return
        for keeper in tasks.values():
            keeper.terminate()
        await asyncio.wait(tasks, timeout=self._patience.grace_s)
        for keeper in tasks.values():
            keeper.kill()
        await asyncio.wait(tasks)


class _Keeper:
    """One child through all its lives."""

    def __init__(
        self, child: Child, show: Show, patience: Patience, stopping: asyncio.Event
    ) -> None:
        self.child = child
        self._show = show
        self._patience = patience
        self._stopping = stopping
        self._process: asyncio.subprocess.Process | None = None
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    async def keep(self) -> str | None:
        """None once stopping; a reason when the child keeps dying."""
        deaths = 0
        while not self._stopping.is_set():
            code, lived_s = await self._live()
            if self._stopping.is_set():
                return None
            deaths = deaths + 1 if lived_s < self._patience.quick_s else 1
            if deaths >= self._patience.quick_deaths:
                return self._explain(deaths, code)
            delay_s = self._patience.delay_s(deaths)
            self._show(self.child.name, f"ended ({exit_words(code)}); again in {delay_s:.3g} s")
            await self._pause(delay_s)
        return None

    async def _live(self) -> tuple[int, float]:
        """One life: its exit code and length in seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        # Our own pipe: asyncio's wait() may also wait for the pipes it made, and a grandchild can
        # hold those open.
        ours, theirs = os.pipe()
        try:
            self._process = process = await self._start(theirs)
        finally:
            os.close(theirs)
        output = asyncio.create_task(self._pump(ours))
        if self._stopping.is_set():
            self.terminate()
        code = await process.wait()
        _kill_group(process.pid)
        self._process = None
        await asyncio.wait([output], timeout=DRAIN_S)
        output.cancel()
        await asyncio.wait([output])
        return code, loop.time() - began

    async def _start(self, output: int) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in the terminal reaches the supervisor alone.
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *self.child.command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(self.child.env),
            start_new_session=True,
        )

    async def _pump(self, descriptor: int) -> None:
        async for line in read_lines(descriptor):
            self._last.append(line)
            self._show(self.child.name, line)

    async def _pause(self, delay_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)

    def _explain(self, deaths: int, code: int) -> str:
        last = "\n".join(f"    {line}" for line in self._last)
        return (
            f"{self.child.name} ended {deaths} times in a row, at last with {exit_words(code)}; "
            f"its last lines:\n{last}"
        )

    def terminate(self) -> None:
        """SIGTERM to the child; it ends its own children."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to the child and all it started."""
        if self._process is not None:
            _kill_group(self._process.pid)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def exit_words(code: int) -> str:
    """``exit code 3`` or ``SIGKILL``, from a return code as Python gives it."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


async def read_lines(descriptor: int) -> AsyncIterator[str]:
    """Text lines of a pipe until its end, in pieces of at most ``LINE_BYTES``; closes it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    rest = b""
    try:
        while data := await reader.read(LINE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) >= LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
        if rest:
            yield rest.decode(errors="replace")
    finally:
        transport.close()
