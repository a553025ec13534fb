"""Scripted peers as processes, and their questions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starsd.bench.peers.server import LOCAL, Process, Server
from starsd.bench.prompts import Prompt
from starsd.process.ports import free_ports
from tests.unit.bench_peers import scripted_peer

START_S = 30.0
CORE = min(os.sched_getaffinity(0))


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt(f"p{i}", "tests", (text,)) for i, text in enumerate(texts)]


def process(folder: Path, *command: str, name: str = "peer") -> Process:
    """A scripted peer, or what is to be run instead."""
    (port,) = free_ports(1, LOCAL)
    scripted = (sys.executable, scripted_peer.__file__, str(port), "0.005")
    return Process(name, command or scripted, {}, port, folder / f"{name}.log")


def server(process: Process, group: int) -> Server:
    return Server(
        process.name, process.url, process.name, "bfloat16", "bfloat16", (group,), process.ready
    )


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    peer = process(folder)
    with peer.running([CORE], START_S) as group:
        yield server(peer, group)
