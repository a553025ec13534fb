"""Framed messages over a socketpair: 4-byte little-endian length, then msgpack.

The step loop's end is synchronous and non-blocking; the front's end is asyncio. Both directions
are bounded: a peer that stops reading is an error, not an ever growing buffer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from starsd.errors import ProtocolError, TransportError

_LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_BACKLOG_BYTES = 64 * 1024 * 1024

Incoming = TypeVar("Incoming")


def encode_frame(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameDecoder(Generic[Incoming]):
    """Bytes in any portions to messages of one union type."""

    def __init__(self, union: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Incoming] = msgspec.msgpack.Decoder(union)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Incoming]:
        """Raises ProtocolError on an oversized or undecodable frame."""
        self._buffer += data
        return list(self._frames())

    def _frames(self) -> Iterable[Incoming]:
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"frame of {length} bytes; the limit is {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield self._decode(body)

    def _decode(self, body: bytes) -> Incoming:
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"undecodable frame: {error}") from error


class LoopChannel(Generic[Incoming]):
    """The step loop's end. ``closed`` turns true when the front is gone."""

    def __init__(self, sock: socket.socket, incoming: Any) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decoder: FrameDecoder[Incoming] = FrameDecoder(incoming)
        self._out = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: object) -> None:
        """Queue and try to write. Raises TransportError when the front has stopped reading."""
        self._out += encode_frame(message)
        self.flush()
        if len(self._out) > MAX_BACKLOG_BYTES:
            raise TransportError(f"front reads too slowly: {len(self._out)} bytes are waiting")

    def flush(self) -> None:
        try:
            while self._out and not self.closed:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def receive(self) -> list[Incoming]:
        """Everything that has arrived, without blocking."""
        self.flush()
        messages: list[Incoming] = []
        while not self.closed:
            try:
                data = self._sock.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.closed = not data
            messages += self._decoder.feed(data)
        return messages

    def close(self) -> None:
        self.closed = True
        self._sock.close()


class FrontChannel(Generic[Incoming]):
    """The front's end, on asyncio streams."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, incoming: Any
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder: FrameDecoder[Incoming] = FrameDecoder(incoming)

    @classmethod
    async def open(cls, sock: socket.socket, incoming: Any) -> FrontChannel[Incoming]:
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, incoming)

    def send(self, message: object) -> None:
        """Queue a frame. Raises TransportError when the loop is gone or has stopped reading."""
        if self._writer.is_closing():
            raise TransportError("the step loop is gone")
        if self._writer.transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            raise TransportError("the step loop has stopped reading")
        self._writer.write(encode_frame(message))

    async def receive(self) -> list[Incoming]:
        """The next messages; empty when the loop is gone."""
        while data := await self._read():
            if messages := self._decoder.feed(data):
                return messages
        return []

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(65536)
        except OSError:
            return b""

    def close(self) -> None:
        self._writer.close()
