"""Real servers for integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from starsd.bus.server import EmbeddedRedis


@pytest.fixture
def redis_server() -> Iterator[EmbeddedRedis]:
    """A fresh Valkey of the test's own on a unix socket; it may be stopped and restarted."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="module")
def module_redis_server() -> Iterator[EmbeddedRedis]:
    """One Valkey for a module whose tests leave nothing behind, or use their own namespaces."""
    with EmbeddedRedis() as server:
        yield server
