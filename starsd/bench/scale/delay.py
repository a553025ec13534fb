"""A longer way to Redis: a unix socket that passes everything on, both ways, some time later."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from starsd.errors import ConfigError

CHUNK = 65536
JOIN_S = 5.0


class Delay:
    """``with Delay(url) as way: way.url``, and from then on ``way.seconds`` each way, which may be
    changed at any time. Its thread lives as long as the block."""

    def __init__(self, redis_url: str) -> None:
        """Raises ConfigError: no unix socket."""
        found = urlsplit(redis_url)
        if found.scheme != "unix":
            raise ConfigError(f"{redis_url}: want a unix:// URL to delay")
        self._server = found.path
        self._folder = tempfile.TemporaryDirectory(prefix="starsd-delay-")
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delay", daemon=True)
        self.seconds = 0.0

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    @property
    def _path(self) -> Path:
        return Path(self._folder.name) / "delayed.sock"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(JOIN_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(JOIN_S)
        self._folder.cleanup()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        self._passing: set[asyncio.Task[None]] = set()
        server = await asyncio.start_unix_server(self._connected, self._path)
        self._ready.set()
        await self._ended.wait()
        server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._server)
        except OSError:
            writer.close()
            return
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """In order, each piece as late as all others."""
        writing: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        task = asyncio.create_task(_write_in_time(writing, sink))
        try:
            while data := await source.read(CHUNK):
                writing.put_nowait((self._loop.time() + self.seconds, data))
            writing.put_nowait((self._loop.time() + self.seconds, b""))
            await task
        except OSError:
            return
        finally:
            task.cancel()
            sink.close()


async def _write_in_time(
    writing: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
) -> None:
    """Until an empty piece ends it."""
    loop = asyncio.get_running_loop()
    while True:
        due, data = await writing.get()
        await asyncio.sleep(due - loop.time())
        if not data:
            return
        sink.write(data)
        with contextlib.suppress(OSError):
            await sink.drain()
