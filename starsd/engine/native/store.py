"""Packed weights in the cache folder: written once, mapped by every process that computes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from filelock import FileLock, Timeout

from starsd.engine.native import architecture, packing, plan, weights
from starsd.engine.native.abi import Array
from starsd.engine.native.architecture import Architecture
from starsd.engine.native.packing import pack_model
from starsd.engine.native.source import Source
from starsd.engine.native.tensors import mapped
from starsd.errors import ConfigError

PACK_S = 1800.0
UNUSED_DAYS = 30
_LAYOUT = (architecture, plan, packing, weights)
"""What a packed file depends on, besides the checkpoint."""

Arrays = Mapping[str, Array]

log = structlog.get_logger()


@dataclass(frozen=True)
class Weights:
    """Packed: ``arrays`` by the names of ``plan``, perhaps of more layers than ``of`` has."""

    of: Architecture
    bits: int
    arrays: Arrays


@dataclass(frozen=True)
class Store:
    """The packed weights of one checkpoint in one precision. ``revision`` says which they are;
    ``files`` are what they come from, in case someone trains them in place."""

    folder: Path
    revision: str
    files: tuple[Path, ...]
    bits: int

    @property
    def path(self) -> Path:
        """Other layouts of the same weights differ in the last part of their names."""
        return self.folder / f"{self._name}-{self._version()}.safetensors"

    def load(self, of: Architecture, source: Callable[[], Source]) -> Arrays:
        """Mapped; packed first, from ``source``, where that is to be done.

        Raises:
            ConfigError: the folder takes no file, or another process packs for too long; and
                what ``pack_model`` raises.
        """
        path = self.path
        arrays = _usable(path) or self._packed(path, of, source)
        with contextlib.suppress(OSError):  # a folder that we only read
            os.utime(path)
        return arrays

    @property
    def _name(self) -> str:
        return f"weights-{_digest(self.revision.encode())}-{self.bits}"

    def _version(self) -> str:
        code = [Path(str(module.__file__)).read_bytes() for module in _LAYOUT]
        stats = [(file.name, file.stat()) for file in self.files]
        facts = [f"{name}:{one.st_size}:{one.st_mtime_ns}".encode() for name, one in stats]
        return _digest(*code, *facts)

    def _packed(self, path: Path, of: Architecture, source: Callable[[], Source]) -> Arrays:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f"{self._name}.lock", timeout=PACK_S):
                found = _usable(path)  # by now
                if found is None:
                    self._pack(path, of, source())
                    found = mapped(path)
        except Timeout:
            raise ConfigError(f"{path}: another process packs it for over {PACK_S} s") from None
        except OSError as error:
            raise ConfigError(
                f"{path}: {error}; set STARSD_CACHE_DIR to a folder with room",
                param="STARSD_CACHE_DIR",
            ) from error
        return found

    def _pack(self, path: Path, of: Architecture, source: Source) -> None:
        log.info("packing the weights once", file=path.name, bits=self.bits)
        self._remove_old()
        part = path.with_suffix(".part")
        try:
            pack_model(part, of, self.bits, source)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _remove_old(self) -> None:
        """Whoever still computes with one keeps its pages; others that pack may be quicker here."""
        unused = time.time() - UNUSED_DAYS * 24 * 3600
        for file in self.folder.glob("weights-*.safetensors"):
            with contextlib.suppress(FileNotFoundError):
                if file.name.startswith(f"{self._name}-") or file.stat().st_mtime < unused:
                    file.unlink()


def _usable(path: Path) -> Arrays | None:
    if not path.is_file():
        return None
    try:
        return mapped(path)
    except ConfigError as error:
        log.warning("packed weights are damaged and will be packed again", reason=error.message)
        return None


def _digest(*facts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(facts), digest_size=8).hexdigest()
