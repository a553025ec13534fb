"""Files that appear whole or not at all, whenever a run is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of ``path``; processes that map that keep the old one."""
    part = path.with_name(f"{path.name}.part")
    yield part
    part.replace(path)
