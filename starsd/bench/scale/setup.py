"""What ``starsd bench scale`` measures."""

from __future__ import annotations

from dataclasses import dataclass

from starsd.bench.scale.models import DEEPEST, Source
from starsd.plan.star import STARS, Mode

REAL, EMULATED, SIMULATED = "real", "emulated", "simulated"
TIERS = (EMULATED, SIMULATED, REAL)
MODES = (Mode.PLAIN, *STARS)
TARGETS = (1, 2, 3, 4, 6, 8, 12, 16)
QUICK_TARGETS = (1, 4, 16)
QUICK_MOST = 4
"""Targets with which depths are compared then."""
DEPTH = 5
"""The paper's."""
DEPTHS = (1, 2, 3, DEEPEST)
"""Others, to compare with."""


@dataclass(frozen=True)
class Setup:
    """``full_at``: the draft's emulated steps are made as slow or fast as lets a one-at-a-time hub
    be full at so many targets (0: as measured); ``verify_ms``: all emulated steps are stretched
    until one that verifies takes so long, for a machine with few cores plays all parts."""

    model: str
    draft: str
    dtype: str
    quantize: str
    tiers: tuple[str, ...]
    modes: tuple[Mode, ...]
    targets: tuple[int, ...]
    full_at: int
    verify_ms: float
    quick: bool

    @property
    def source(self) -> Source:
        prompts, tokens = (12, 64) if self.quick else (24, 128)
        return Source(self.model, self.draft, self.dtype, self.quantize, prompts, tokens)

    @property
    def seconds(self) -> float:
        """Of a point, besides its warm-up."""
        return 2.0 if self.quick else 5.0

    @property
    def depths(self) -> tuple[int, ...]:
        """Besides the usual one."""
        return DEPTHS[:1] if self.quick else DEPTHS

    @property
    def depth_targets(self) -> tuple[int, ...]:
        """Where depths are compared."""
        few = tuple(count for count in self.targets if count <= QUICK_MOST)
        return few if self.quick else self.targets
