"""How training went: a line of JSON a while, for the plot and for whoever goes on."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Self

import msgspec

from training.files import replaced
from training.objective import Score
from training.trainer import tokens_per_round

EVERY = 20


class Point(msgspec.Struct, frozen=True):
    """After ``updates``: the mean loss since the last point, or what held-out text says."""

    updates: int
    tokens: int = 0
    acceptance: list[float] = []
    loss: float | None = None


class Curve:
    """Appends to a file, in which nothing stays of what a killed run did after ``updates``, its
    last that were saved."""

    def __init__(self, path: Path, updates: int) -> None:
        self._path = path
        self._before = [one for one in read_curve(path) if one.updates <= updates]
        self._losses: list[float] = []
        self._file: IO[bytes]
        self._said: dict[str, str] = {}

    def __enter__(self) -> Self:
        with replaced(self._path) as part:
            part.write_bytes(b"".join(map(_line, self._before)))
        for point in self._before:
            self._show(point)
        self._file = self._path.open("ab")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def last(self) -> str:
        """For a progress bar."""
        return ", ".join(self._said.values())

    def update(self, number: int, score: Score) -> None:
        self._losses.append(float(score.loss.detach()))
        if number % EVERY == 0 or number == 1:
            loss = sum(self._losses) / len(self._losses)
            self._losses.clear()
            self._write(Point(number, loss=loss))

    def judged(self, number: int, acceptance: list[float]) -> None:
        self._write(Point(number, acceptance=acceptance))

    def _write(self, point: Point) -> None:
        self._file.write(_line(point))
        self._file.flush()
        self._show(point)

    def _show(self, point: Point) -> None:
        if point.loss is not None:
            self._said["loss"] = f"loss {point.loss:.3f}"
        if shares := point.acceptance:
            listed = " ".join(f"{share:.3f}" for share in shares)
            tokens = tokens_per_round(shares)
            self._said["judged"] = f"acceptance {listed}, {tokens:.2f} tokens a round"


def _line(point: Point) -> bytes:
    return msgspec.json.encode(point) + b"\n"


def read_curve(path: Path) -> list[Point]:
    """Without its last line if a kill cut that."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line, type=Point) for line in lines if line.endswith(b"\n")]
