"""Fixtures of the engine's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def native_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled code and packed weights are kept for the session."""
    return tmp_path_factory.mktemp("native-cache")
