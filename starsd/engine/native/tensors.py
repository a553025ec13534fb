"""Files in the safetensors format, by tensor; its own library needs torch for bfloat16."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from starsd.engine.native.abi import LINE, Array
from starsd.errors import ConfigError

Floats = npt.NDArray[np.float32]
Wholes = npt.NDArray[np.int64]

FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
TYPES = {**FLOATS, "U8": "u1"}

WHOLES = {"I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1"}

_PREFIX = 8
"""Bytes of the header's length."""


@dataclass(frozen=True)
class Tensor:
    """``place``: of its first byte in ``file``."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    place: int
    size: int

    def rows(self, first: int, last: int) -> Floats:
        """``[last - first, ...]``, read from the file. Raises ConfigError."""
        found = self._read(FLOATS[self.kind], first, last)
        if self.kind == "BF16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32, copy=False)

    def wholes(self) -> Wholes:
        """All of it. Raises ConfigError."""
        if self.kind not in WHOLES:
            raise ConfigError(f"{self.file}: whole numbers of type {self.kind}")
        return self._read(WHOLES[self.kind], 0, self.shape[0]).astype(np.int64)

    def _read(self, kind: str, first: int, last: int) -> Array:
        count = int(np.prod(self.shape[1:]))
        place = self.place + first * count * np.dtype(kind).itemsize
        try:
            flat = np.fromfile(self.file, kind, (last - first) * count, offset=place)
            return flat.reshape(last - first, *self.shape[1:])
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.file}: {error}") from error


def read_header(file: Path) -> dict[str, Tensor]:
    """What ``file`` holds, by name.

    Raises:
        ConfigError: not such a file, or not all of it.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as data:
            start = _PREFIX + int.from_bytes(data.read(_PREFIX), "little")
            header = json.loads(data.read(start - _PREFIX)) if start < size else {}
        found = {
            name: _tensor(file, entry, start)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is no safetensors file: {error}") from error
    end = max((one.place + one.size for one in found.values()), default=-1)
    if end != size:
        raise ConfigError(f"{file} is cut off: {size} bytes")
    return found


def _tensor(file: Path, entry: Mapping[str, Any], start: int) -> Tensor:
    first, last = entry["data_offsets"]
    return Tensor(file, entry["dtype"], tuple(entry["shape"]), start + first, last - first)


def header_of(tensors: Mapping[str, tuple[str, int]]) -> bytes:
    """Of a file of flat ``tensors`` (type, bytes), in order; they begin at a multiple of 64."""
    header, place = {}, 0
    for name, (kind, size) in tensors.items():
        count = size // np.dtype(TYPES[kind]).itemsize
        offsets = [place, place + size]
        header[name] = {"dtype": kind, "shape": [count], "data_offsets": offsets}
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX + len(text)) % LINE)
    return len(text).to_bytes(_PREFIX, "little") + text


def mapped(file: Path) -> dict[str, Array]:
    """All flat tensors of ``file``, read-only, in pages that processes share.

    Raises:
        ConfigError: see ``read_header``.
    """
    header = read_header(file)
    with file.open("rb") as data:
        pages = np.frombuffer(mmap.mmap(data.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return {
        name: pages[one.place : one.place + one.size].view(TYPES[one.kind])
        for name, one in header.items()
    }
