"""``python -m tests.integration.fronts.fake_target``: a target whose loop is the fake one."""

from __future__ import annotations

import sys

from services.target.serve import serve
from starsd.errors import StarsdError
from starsd.process.front import with_identity
from starsd.service import run
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings
from tests.integration.fronts.fakes import fake_loop, tokenizer


def main() -> None:
    try:
        settings = with_identity(load(TargetSettings), "target")
        run("target", settings, lambda stop: serve(settings, fake_loop, stop, tokenizer))
    except StarsdError as error:
        sys.exit(f"target: {error.message}")


if __name__ == "__main__":
    main()
