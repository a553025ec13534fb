"""Fixtures that every test tree shares."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# How long an example takes is the machine's affair.
hypothesis.settings.register_profile("starsd", deadline=None)
hypothesis.settings.load_profile("starsd")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Llama checkpoint (see ``tests.tiny``), made once per run."""
    from tests.tiny import make_tiny_model  # only tests that use it pay for torch

    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def native_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled code and packed weights are kept, for all workers of a run."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "native"
