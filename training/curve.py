"""How training went: a line of JSON a while, for the plot and for whoever goes on."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Self

import msgspec

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
    """Appends to a file; ``last`` is what a progress bar shows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._losses: list[float] = []
        self._file: IO[bytes]
        self.last = ""

    def __enter__(self) -> Self:
        self._file = self._path.open("ab")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def update(self, number: int, score: Score) -> None:
        self._losses.append(float(score.loss.detach()))
        if number % EVERY == 0:
            loss = sum(self._losses) / len(self._losses)
            self._losses.clear()
            self._write(Point(number, loss=loss))

    def judged(self, number: int, acceptance: list[float]) -> None:
        self._write(Point(number, acceptance=acceptance))
        shares = " ".join(f"{share:.3f}" for share in acceptance)
        self.last = f"acceptance {shares}, {tokens_per_round(acceptance):.2f} tokens a round"

    def _write(self, point: Point) -> None:
        self._file.write(msgspec.json.encode(point) + b"\n")
        self._file.flush()


def read_curve(path: Path) -> list[Point]:
    return [msgspec.json.decode(line, type=Point) for line in path.read_bytes().splitlines()]
