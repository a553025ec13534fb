"""The seam of the hub's scheduling: who computes in the next step.

A policy is a class behind ``Scheduler`` in a module of its own, and a line in ``POLICIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from services.draft.fair import Fair
from services.draft.fifo import Fifo
from services.draft.sessions import HubSequence
from starsd.settings.draft import DraftSettings


class Scheduler(Protocol):
    """Asked once a step, so newcomers join at the next token and nobody blocks for longer."""

    def choose(self, waiting: Sequence[HubSequence], limit: int) -> list[HubSequence]:
        """Of ``waiting``, all that have work (one at least), those who take part in the next step,
        the most urgent first: of about ``limit`` tokens, where the policy heeds it. Never nobody:
        while a job waits, the model computes."""


POLICIES: Mapping[str, Callable[[DraftSettings], Scheduler]] = {"fair": Fair, "fifo": Fifo}


def make_scheduler(settings: DraftSettings) -> Scheduler:
    """The one that the settings name."""
    return POLICIES[settings.scheduler](settings)
