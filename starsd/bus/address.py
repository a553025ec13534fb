"""Where Redis is: a redis://, rediss:// or unix:// URL, read the way redis-py reads it."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any

from redis.connection import SSLConnection, parse_url

from starsd.errors import ConfigError

_FALSE = frozenset({"none", "false", "0", "no"})


@dataclass(frozen=True)
class Address:
    """One Redis server. Either ``path`` (unix socket) or ``host`` and ``port``."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    username: str = ""
    password: str = ""
    database: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def greeting(self) -> list[tuple[str, ...]]:
        """Commands a fresh connection sends before any other; all must succeed."""
        auth = tuple(part for part in ("AUTH", self.username, self.password) if part)
        select = ("SELECT", str(self.database))
        commands = [auth] if self.password else []
        return [*commands, *([select] if self.database else []), ("PING",)]

    def __str__(self) -> str:
        """For logs: without credentials."""
        scheme = "rediss" if self.tls else "redis"
        return f"unix://{self.path}" if self.path else f"{scheme}://{self.host}:{self.port}"


def parse_address(url: str) -> Address:
    """Raises ConfigError for a scheme, option or certificate that we do not know or cannot read.

    TLS options in the query, as redis-py names them: ``ssl_ca_certs``, ``ssl_certfile``,
    ``ssl_keyfile``, ``ssl_cert_reqs`` (``none`` trusts any server), ``ssl_check_hostname``.
    """
    try:
        parts = dict(parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ConfigError(f"redis_url: {error}") from error
    tls = _tls(parts) if parts.pop("connection_class", None) is SSLConnection else None
    known = {"host", "port", "path", "username", "password"}
    database = int(parts.pop("db", 0))
    if unknown := sorted(parts.keys() - known):
        raise ConfigError(f"redis_url: unknown option {', '.join(unknown)}")
    return Address(database=database, tls=tls, **parts)


def _tls(parts: dict[str, Any]) -> ssl.SSLContext:
    authority = parts.pop("ssl_ca_certs", None)
    certificate, key = parts.pop("ssl_certfile", None), parts.pop("ssl_keyfile", None)
    trusting = parts.pop("ssl_cert_reqs", "required") in _FALSE
    any_name = str(parts.pop("ssl_check_hostname", "true")).lower() in _FALSE
    try:
        context = ssl.create_default_context(cafile=_readable(authority))
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(f"redis_url: unusable certificate: {error}") from error
    context.check_hostname = not (trusting or any_name)
    if trusting:
        context.verify_mode = ssl.CERT_NONE
    return context


def _readable(path: str | None) -> str | None:
    """OpenSSL's own error for a missing file does not name it."""
    if path and not os.access(path, os.R_OK):
        raise OSError(f"cannot read {path}")
    return path
