"""Free TCP ports. Another process may take one before its child does; the restart then tells."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection

from starsd.errors import ConfigError

FIRST, LAST = 10_000, 32_767
"""Below what Linux gives to outgoing connections, so that none of those takes one meanwhile."""
TRIES = 1000


def free_ports(count: int, host: str, besides: Collection[int] = ()) -> list[int]:
    """``count`` different ports that are free on ``host`` now, none of ``besides``.

    Raises:
        ConfigError: there is none; ``host`` may be no address of this machine.
    """
    found: list[int] = []
    for _ in range(TRIES):
        if len(found) == count:
            return found
        port = FIRST + secrets.randbelow(LAST - FIRST + 1)
        if port not in (*found, *besides) and is_free(host, port):
            found.append(port)
    raise ConfigError(f"no free port on {host}: is it an address of this machine?")


def choose_port(host: str, wanted: int, *, insist: bool) -> int:
    """``wanted`` if it is free there, else any free one; 0 takes any.

    Raises:
        ConfigError: the port is taken and the user insists on it.
    """
    if wanted and is_free(host, wanted):
        return wanted
    if wanted and insist:
        raise ConfigError(f"port {wanted} is taken on {host}: choose another, or 0 for a free one")
    return free_ports(1, host)[0]


def is_free(host: str, port: int) -> bool:
    try:
        with _bound(host, port):
            return True
    except OSError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
