"""What is planned: a star of so many targets and hubs, and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """Who drafts, and how."""

    PLAIN = "plain"
    COLOCATED = "colocated"
    """Each target drafts for itself, in turn with verifying."""
    FIFO = "fifo"
    """A hub serves one job after the other: the paper's design."""
    BATCHED = "batched"
    """A hub's step serves all jobs that wait."""
    RUN_AHEAD = "runahead"
    """Likewise, and an idle hub drafts on from its own proposals."""


STARS = (Mode.FIFO, Mode.BATCHED, Mode.RUN_AHEAD)
"""Those with a hub."""


@dataclass(frozen=True)
class Star:
    """``sequences`` of each target decode at once; all ask for ``depth`` tokens a round. The
    targets are shared evenly among ``hubs``."""

    mode: Mode
    targets: int
    depth: int
    sequences: int = 1
    hubs: int = 1

    @property
    def accelerators(self) -> int:
        """Hubs counted."""
        return self.targets + (self.hubs if self.mode in STARS else 0)


@dataclass(frozen=True)
class Figures:
    """``throughput`` of all targets in tokens/s; ``round_s`` passes between two verifications of a
    sequence; ``busy`` is the hub's share of time with its model computing."""

    throughput: float
    round_s: float
    tokens_per_round: float
    busy: float

    @property
    def token_s(self) -> float:
        """Latency of a token, as one sequence sees it."""
        return self.round_s / self.tokens_per_round
