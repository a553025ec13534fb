"""One job at a time, to its end, in the order of arrival: the StarSD paper's own hub, for
comparison."""

from __future__ import annotations

from collections.abc import Sequence

from services.draft.sessions import HubSequence
from starsd.settings.draft import DraftSettings


class Fifo:
    """Implements ``Scheduler``."""

    def __init__(self, settings: DraftSettings) -> None:
        """Takes no settings."""

    def choose(self, waiting: Sequence[HubSequence], limit: int) -> list[HubSequence]:
        return [min(waiting, key=lambda one: one.arrival)]
