"""Fixtures that every test tree shares."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Llama checkpoint (see ``tests.tiny``), made once per run."""
    from tests.tiny import make_tiny_model  # only tests that use it pay for torch

    return make_tiny_model(tmp_path_factory.mktemp("tiny"))
