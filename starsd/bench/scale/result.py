"""What ``starsd bench scale`` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starsd.bench.scale.gaps import Gap


@dataclass(frozen=True)
class Bar:
    """``value`` should be at least, or at most, ``limit``; None was not measured. ``s_over_v`` is
    that of the tier it was measured in."""

    name: str
    tier: str
    value: float | None
    limit: float
    at_least: bool
    s_over_v: float | None

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Row:
    """A point of the emulated tier. ``tokens_per_s`` are counted by clients, ``expected`` are its
    rounds times what rounds give on average, so without the luck of a few seconds' texts.
    Predictions are of the time between two rounds, over the measured one."""

    mode: str
    targets: int
    depth: int
    note: str
    tokens_per_s: float
    expected: float
    round_ms: float
    wait_ms: float
    busy: float
    unforced: float
    simulated: float | None
    formula: float | None


@dataclass(frozen=True)
class Other:
    """Beside the emulated stars, without a hub: tokens/s of so many targets."""

    targets: int
    plain: float
    one_more_plain: float
    colocated: float


@dataclass(frozen=True)
class Share:
    """A target of a point where they differ: rounds a second, p95 of a round, and waiting."""

    point: str
    target: int
    sequences: int
    rounds_per_s: float
    tokens_per_s: float
    p95_round_ms: float


@dataclass(frozen=True)
class RealRow:
    variant: str
    delay_ms: float
    tokens_per_s: float
    foreseen: float
    wait_ms: float
    draft_ms: float
    queue_ms: float
    network_ms: float
    verify_ms: float


@dataclass(frozen=True)
class Result:
    unforced_idle: float | None
    fifo_idle_saturated: float | None
    batched_over_fifo_saturated: float | None
    runahead_wait_removed: float | None
    runahead_cost_saturated: float | None
    runahead_hits: float | None
    jain: float | None
    quiet_extra_steps: float | None
    depth_regret: float | None
    model_error: float | None
    formula_error: float | None
    real_error: float | None
    star_over_plain: float | None
    star_over_plain_two_cores: float | None
    s_over_v: float | None
    s_over_v_real: float | None
    full_predicted: int | None
    full_measured: int | None
    mismatched: int
    bars: list[Bar]
    rows: list[Row] = field(default_factory=list)
    others: list[Other] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    real: list[RealRow] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    costs_us: dict[str, float] = field(default_factory=dict)
    bytes_per_round: dict[str, float] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
