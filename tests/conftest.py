"""Fixtures that every test tree shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from starsd.process import ports

# How long an example takes is the machine's affair.
hypothesis.settings.register_profile("starsd", deadline=None)
hypothesis.settings.load_profile("starsd")

PORT_RANGES = 4


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


@pytest.fixture(scope="session", autouse=True)
def own_ports() -> Iterator[None]:
    """Workers choose from different ranges: a port is free until the service that gets it is up."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PORT_RANGES
    size = (ports.LAST - ports.FIRST) // PORT_RANGES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "LAST", ports.FIRST + (number + 1) * size - 1)
        patch.setattr(ports, "FIRST", ports.FIRST + number * size)
        yield
