"""Where the weights of a model come from, a few rows at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from starsd.engine.native.tensors import FLOATS, Floats, Tensor, read_header
from starsd.errors import ConfigError


class Source(Protocol):
    """Weights by the names that transformers gives them."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """None: there is no such weight."""

    def rows(self, name: str, first: int, last: int) -> Floats:
        """``[last - first, ...]``."""


class Checkpoint:
    """A folder's safetensors files: one, or those that its index names.

    Weights of other types than floats are as if they were not there.
    """

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ConfigError: a file that is missing or cut off.
        """
        self._tensors: dict[str, Tensor] = {}
        for file in _files(folder):
            self._tensors.update(read_header(file))

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self._tensors.get(name)
        return None if tensor is None or tensor.kind not in FLOATS else tensor.shape

    def rows(self, name: str, first: int, last: int) -> Floats:
        """Raises ConfigError."""
        return self._tensors[name].rows(first, last)


def _files(folder: Path) -> list[Path]:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file() or not index.is_file():
        return [whole]
    try:
        names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{index}: {error}") from error
    return [folder / name for name in sorted(names)]
