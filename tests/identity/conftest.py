from __future__ import annotations

from pathlib import Path

import pytest

from starsd.engine.interface import Runner
from tests.identity.reference import Reference
from tests.identity.support import draft_runner, target_runner
from tests.tiny import LAYERS_DRAFT, NOISY_DRAFT


@pytest.fixture(scope="session")
def reference(tiny_model: Path) -> Reference:
    return Reference(tiny_model)


@pytest.fixture(scope="session")
def targets(tiny_model: Path) -> list[Runner]:
    """Two batch-invariant targets; tests share them, because any state left must not matter."""
    return [target_runner(tiny_model) for _ in range(2)]


@pytest.fixture(scope="session")
def drafts(tiny_model: Path) -> dict[str, Runner]:
    return {name: draft_runner(tiny_model, name) for name in (LAYERS_DRAFT, NOISY_DRAFT, "self")}
