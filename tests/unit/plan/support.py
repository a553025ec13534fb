"""Costs of a star, to be planned with."""

from __future__ import annotations

from starsd.plan.costs import Costs, straight

COSTS = Costs(
    draft_first=straight(0.004, 0.1),
    draft_next=straight(0.004, 0.1),
    verify=straight(0.050, 0.01),
    network_s=0.002,
)
FLAT = Costs(straight(0.004, 0.0), straight(0.004, 0.0), straight(0.050, 0.0), 0.010)
"""Where nothing depends on size."""
