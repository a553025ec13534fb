"""What has been measured, a file for each point, so that a run that was broken off goes on."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from starsd.bench.record import rounded
from starsd.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
SETUP = "setup.json"


class Store:
    """A folder of one setup's raw data."""

    def __init__(self, folder: Path, setup: DataclassInstance) -> None:
        """Raises ConfigError: it cannot be written, or holds data of another setup."""
        self.folder = folder
        told = json.dumps(dataclasses.asdict(setup))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / SETUP
            before = file.read_text("utf-8") if file.exists() else told
            file.write_text(before, "utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {folder}: {error.strerror}", param="--out") from error
        if before != told:
            raise ConfigError(
                f"{folder} holds a run of other options: take another folder", param="--out"
            )

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def has(self, key: str) -> bool:
        return self.path(key).exists()

    def load(self, key: str, kind: type[T]) -> T:
        """Raises ConfigError: none of ours."""
        try:
            return msgspec.json.decode(self.path(key).read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self.path(key)}: {error}", param="--out") from error

    def save(self, key: str, value: DataclassInstance) -> None:
        """Whole or not at all."""
        text = json.dumps(rounded(dataclasses.asdict(value)))
        with tempfile.NamedTemporaryFile(
            "w", dir=self.folder, suffix=".part", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        Path(file.name).replace(self.path(key))

    def once(self, key: str, kind: type[T], make: Callable[[], T]) -> T:
        """What is there, or what ``make`` gives, from now on."""
        if not self.has(key):
            self.save(key, make())
        return self.load(key, kind)
