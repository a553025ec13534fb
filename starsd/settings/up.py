"""Settings of ``starsd up``."""

from __future__ import annotations

from pydantic import Field

from starsd.settings.common import Settings


class UpSettings(Settings):
    """``starsd up``: the whole star on one machine."""

    targets_count: int = Field(2, ge=1, le=64, description="Targets to start.")
    ready_timeout_s: float = Field(
        300.0, gt=0, description="Longest wait for the star to serve, model download included."
    )
