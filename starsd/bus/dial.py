"""Opening a connection step by step, so that a step loop never waits for one."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import threading
from collections.abc import Generator
from typing import Any

from starsd.bus.address import Address

Endpoint = tuple[socket.AddressFamily, Any]
Dialing = Generator[None, None, socket.socket]

_STARTED = (0, errno.EINPROGRESS)


class Resolver:
    """Looks a host name up in a thread; the C library offers no other way that does not block.

    At most one look-up runs, however often it is asked. The thread is a daemon: a hung name
    server must not keep the process alive.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._thread: threading.Thread | None = None
        self._found: list[Endpoint] = []
        self._error: OSError | None = None

    def lookup(self) -> Generator[None, None, list[Endpoint]]:
        """Yields until the endpoints are known. Raises OSError."""
        if self._address.path:
            return [(socket.AF_UNIX, self._address.path)]
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="redis-lookup")
            self._thread.start()
        while self._thread is not None and self._thread.is_alive():
            yield
        self._thread = None
        if self._error is not None:
            raise self._error
        return self._found

    def _run(self) -> None:
        try:
            entries = socket.getaddrinfo(
                self._address.host, self._address.port, type=socket.SOCK_STREAM
            )
            self._found, self._error = [(entry[0], entry[4]) for entry in entries], None
        except OSError as error:
            self._error = error


def dial(address: Address, resolver: Resolver) -> Dialing:
    """Yields until connected (and TLS is up), trying each endpoint of the name in turn.

    Returns a non-blocking socket. Raises OSError (``ssl.SSLError`` is one).
    """
    failure = OSError(f"{address}: no address")
    for family, endpoint in (yield from resolver.lookup()):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            yield from _connect(sock, endpoint)
            if address.tls is None:
                return sock
            return (yield from _secure(sock, address.tls, address.host))
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise failure


def _connect(sock: socket.socket, endpoint: Any) -> Generator[None, None, None]:
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = sock.connect_ex(endpoint)
    if code not in _STARTED:
        raise OSError(code, os.strerror(code))
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    while not poller.poll(0):
        yield
    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code))


def _secure(sock: socket.socket, context: ssl.SSLContext, host: str) -> Dialing:
    secured = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                secured.do_handshake()
                return secured
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                yield
    except BaseException:
        secured.close()
        raise
