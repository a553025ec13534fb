"""Dialogues on disk: token ids in compressed shards, written whole, read back in order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from starsd.errors import ConfigError
from training.files import replaced

Ids = npt.NDArray[np.int32]
Marks = npt.NDArray[np.bool_]
SHARD_TOKENS = 200_000


@dataclass(frozen=True)
class Dialogue:
    """``tokens [n]`` from the first of the template on; ``own [n]`` marks what the target answered
    (its end token included) at ``temperature``. ``number`` is its place in the endless series."""

    number: int
    temperature: float
    tokens: Ids
    own: Marks


class Shards:
    """A folder of ``shard-00000.npz``, each about ``SHARD_TOKENS`` long; one writer at a time."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._folder = folder
        self._dtype: Any = np.uint16 if vocab_size <= 2**16 else np.uint32
        self._pending: list[Dialogue] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._number = 1 + max((int(path.stem[-5:]) for path in self.paths), default=-1)
        self.tokens = sum(len(one.tokens) for one in self)
        self.next_number = 1 + max((one.number for one in self), default=-1)

    @property
    def paths(self) -> list[Path]:
        return sorted(self._folder.glob("shard-*.npz"))

    def __iter__(self) -> Iterator[Dialogue]:
        for path in self.paths:
            yield from _read(path)

    def add(self, dialogue: Dialogue) -> None:
        self._pending.append(dialogue)
        self.tokens += len(dialogue.tokens)
        if sum(len(one.tokens) for one in self._pending) >= SHARD_TOKENS:
            self.flush()
            self._pending, self._number = [], self._number + 1

    def flush(self) -> None:
        """Write the newest shard as far as it goes."""
        if not self._pending:
            return
        path = self._folder / f"shard-{self._number:05d}.npz"
        with replaced(path) as part, part.open("wb") as file:
            np.savez_compressed(
                file,
                tokens=np.concatenate([one.tokens for one in self._pending]).astype(self._dtype),
                own=np.packbits(np.concatenate([one.own for one in self._pending])),
                lengths=np.array([len(one.tokens) for one in self._pending], dtype=np.int32),
                numbers=np.array([one.number for one in self._pending], dtype=np.int64),
                temperatures=np.array([one.temperature for one in self._pending], dtype=np.float32),
            )


def copy_shards(source: Path, folder: Path) -> None:
    """Whatever of ``source`` is not in ``folder`` yet.

    Raises ConfigError: it has no shards.
    """
    found = sorted(source.glob("shard-*.npz"))
    if not found:
        raise ConfigError(f"{source}: no shards of dialogues", param="data")
    folder.mkdir(parents=True, exist_ok=True)
    for path in found:
        own = folder / path.name
        if not own.exists():
            with replaced(own) as part:
                shutil.copyfile(path, part)


def _read(path: Path) -> Iterator[Dialogue]:
    with np.load(path) as shard:
        ends = np.cumsum(shard["lengths"])
        tokens = shard["tokens"].astype(np.int32)
        own = np.unpackbits(shard["own"], count=len(tokens)).astype(np.bool_)
        facts = zip(
            shard["numbers"], shard["temperatures"], ends - shard["lengths"], ends, strict=True
        )
        for number, temperature, start, end in facts:
            part = slice(int(start), int(end))
            yield Dialogue(int(number), float(temperature), tokens[part], own[part])
