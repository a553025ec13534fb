"""From settings to what drafts: a head over the target's states, or a language model."""

from __future__ import annotations

from typing import NamedTuple

from starsd.drafters.eagle import EagleDrafter
from starsd.drafters.interface import Drafter
from starsd.drafters.lm import LmDrafter
from starsd.engine.eagle.loading import head_folder, load_head
from starsd.engine.interface import HeadRunner, Runner
from starsd.engine.loading import load_drafter_runner
from starsd.process.parts import Parts
from starsd.protocol.pods import Needs
from starsd.settings.draft import DraftSettings


class Loaded(NamedTuple):
    """A drafter, what it runs on, whose time ``parts`` counts, and what it needs of targets."""

    drafter: Drafter
    runner: Runner | HeadRunner
    parts: Parts
    fingerprint: str
    needs: Needs | None = None


def load_drafter(settings: DraftSettings) -> Loaded:
    """A head or a language model, whichever the draft setting names. Raises StarsdError."""
    folder = head_folder(settings)
    if folder is not None:
        head = load_head(settings, folder)
        parts = Parts(head.parts)
        needs = Needs(
            hidden_size=head.hidden_size, layers=head.layers, revision=head.target_revision
        )
        return Loaded(EagleDrafter(head, settings, parts), head, parts, head.revision, needs)
    model = load_drafter_runner(settings)
    parts = Parts(model.parts)
    return Loaded(LmDrafter(model, settings, parts), model, parts, model.fingerprint)
