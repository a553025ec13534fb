"""The star that clients are tried on: one gateway, three models, for each two targets and a hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starsd.check.lab import Lab
from tests.conformance.clients.asked import ECHO, MODEL, PUPIL

READY_S = 300.0
SETTINGS: dict[str, dict[str, Any]] = {
    ECHO: {"scripted": "tests.scripted:EchoModel", "max_length": 8192},
    PUPIL: {"scripted": "tests.conformance.pupil:PupilModel", "max_length": 8192},
    MODEL: {"max_length": 4096, "max_sequences": 4},
}
"""Answers known in advance, and what a real model makes of a client's own questions."""


@contextmanager
def running() -> Iterator[str]:
    """The gateway's address, once every target has a hub."""
    with Lab() as lab:
        targets = [_start(lab, name, **given) for name, given in SETTINGS.items()]
        urls = json.dumps([url for pair in targets for url in pair])
        gateway = lab.start("gateway", "gateway", targets=urls)
        lab.wait_ready(READY_S)
        lab.wait_hubs(READY_S)
        yield gateway.url


def _start(lab: Lab, name: str, **settings: Any) -> list[str]:
    """Two targets and a hub of one model; the addresses of the targets."""
    lab.start(f"{name}-hub", "draft", namespace=name, **settings)
    served = {"served_model_name": name, "namespace": name, **settings}
    return [lab.start(f"{name}-{index}", "target", **served).url for index in range(2)]
