"""What ``python -m services.target`` runs."""

from __future__ import annotations

import sys

from services.target.loop import run_target_loop
from services.target.serve import serve
from starsd.errors import StarsdError
from starsd.process.front import with_identity
from starsd.service import run
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings


def main() -> None:
    """Exit code 1, with the reason, when the target cannot start or its loop died."""
    try:
        settings = with_identity(load(TargetSettings), "target")
        run("target", settings, lambda stop: serve(settings, run_target_loop, stop))
    except StarsdError as error:
        sys.exit(f"target: {error.message}")
