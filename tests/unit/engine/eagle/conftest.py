"""Loads heads of ``tests.unit.engine.eagle.heads``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starsd.engine.eagle.loading import load_head
from starsd.engine.eagle.native_head import NativeHead
from starsd.engine.interface import HeadRunner
from tests.unit.engine.helpers import draft_settings

KINDS: dict[str, dict[str, Any]] = {
    "torch": {"dtype": "float32"},
    "torch, invariant": {"dtype": "float32", "batch_invariant": True},
    "16 bits": {"dtype": "bfloat16"},
    "8 bits": {"dtype": "auto", "quantize": "int8"},
}
"""Settings of each way to compute a head."""

Load = Callable[..., HeadRunner]


@pytest.fixture(scope="session")
def load(tiny_model: Path, native_cache: Path) -> Load:
    """A head for the tiny model."""

    def load(
        folder: Path, kind: str = "torch", target: Path = tiny_model, **changes: Any
    ) -> HeadRunner:
        values = {**KINDS[kind], "cache_dir": native_cache, "draft": str(folder), **changes}
        head = load_head(draft_settings(target, **values), folder)
        assert isinstance(head, NativeHead) == kind.endswith("bits")
        return head

    return load
