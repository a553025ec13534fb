"""What the target computed of text that comes again in a later pass."""

from __future__ import annotations

import os
import tempfile
from hashlib import blake2b
from pathlib import Path

import structlog
import torch
from torch import Tensor

log = structlog.get_logger()


class Kept:
    """Rows of bfloat16 for each token of a text, in a file without a name that goes with the
    process; texts are known by their token ids.

    ``limit``: bytes. What comes when they are spent, or the disk is full, is not kept.
    """

    def __init__(self, folder: Path, limit: float) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._places: dict[bytes, int] = {}
        self._end, self._limit = 0, limit

    def close(self) -> None:
        self._file.close()

    def get(self, text: Tensor, width: int) -> Tensor | None:
        """``[n, width]`` of ``text [n]``, or None."""
        place = self._places.get(_name(text))
        if place is None:
            return None
        held = os.pread(self._file.fileno(), 2 * len(text) * width, place)
        return torch.frombuffer(bytearray(held), dtype=torch.bfloat16).view(len(text), width)

    def put(self, text: Tensor, rows: Tensor) -> None:
        """``rows [n, width]`` of ``text [n]``."""
        data = rows.contiguous().view(torch.uint8).numpy().tobytes()
        if self._end + len(data) > self._limit:
            return
        try:
            written = os.pwrite(self._file.fileno(), data, self._end)
        except OSError as error:
            log.warning("features are computed anew from now on", error=str(error))
            self._limit = 0
            return
        if written == len(data):
            self._places[_name(text)] = self._end
            self._end += len(data)


def _name(text: Tensor) -> bytes:
    return blake2b(text.numpy().tobytes(), digest_size=16).digest()
