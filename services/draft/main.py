"""What ``python -m services.draft`` runs."""

from __future__ import annotations

import sys

from services.draft.loop import run_hub_loop
from services.draft.serve import serve
from starsd.errors import StarsdError
from starsd.process.front import with_identity
from starsd.service import run
from starsd.settings.draft import DraftSettings
from starsd.settings.loading import load


def main() -> None:
    """Exit code 1, with the reason, when the hub cannot start or its loop died."""
    try:
        settings = with_identity(load(DraftSettings), "draft")
        run("draft", settings, lambda stop: serve(settings, run_hub_loop, stop))
    except StarsdError as error:
        sys.exit(f"draft: {error.message}")
