"""Our own servers: a target behind a gateway, plain or with a draft hub on a core of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from starsd.bench.peers.result import PLAIN, STAR
from starsd.bench.peers.server import Server, pinned
from starsd.check.lab import Lab

PRECISIONS: Mapping[str, Mapping[str, str]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
}
SERVED = "starsd"


@contextmanager
def plain(
    precision: str, model: str, cores: Sequence[int], at_once: int, timeout_s: float
) -> Iterator[Server]:
    """A target without drafts and its gateway, all on ``cores``."""
    settings = {**PRECISIONS[precision], "drafting": False, "threads": len(cores)}
    with ExitStack() as stack:
        with pinned(cores):
            lab = stack.enter_context(Lab(redis_url="", **_common(model, at_once)))
            lab.start("target", "target", **settings)
            server = _behind_gateway(lab, f"{PLAIN}-{precision}", precision, timeout_s)
        yield server


@contextmanager
def star(
    precision: str,
    draft: str,
    wait_budget: float,
    model: str,
    cores: Sequence[int],
    at_once: int,
    timeout_s: float,
) -> Iterator[Server]:
    """A target on the first of two cores, its hub on the second: as many as a peer on both has."""
    target, hub = cores
    settings = PRECISIONS[precision]
    with ExitStack() as stack:
        with pinned(cores):
            lab = stack.enter_context(Lab(**_common(model, at_once)))
            lab.start("draft", "draft", cores=hub, draft=draft, **settings)
            lab.start("target", "target", cores=target, wait_budget=wait_budget, **settings)
            server = _behind_gateway(lab, f"{STAR}-{precision}", precision, timeout_s)
            lab.wait_hubs(timeout_s)
        yield server


def _common(model: str, at_once: int) -> dict[str, Any]:
    """The same prompts come again and again, so no server keeps their prefixes."""
    facts = {"model": model, "served_model_name": SERVED, "max_sequences": at_once}
    return {"log_level": "warning", "prefix_cache": 0, **facts}


def _behind_gateway(lab: Lab, name: str, precision: str, timeout_s: float) -> Server:
    gateway = lab.start("gateway", "gateway", targets=json.dumps([lab.services["target"].url]))
    lab.wait_ready(timeout_s)
    processes = [service.process for service in lab.services.values()]
    return Server(
        name=name,
        url=gateway.url,
        model=SERVED,
        precision=precision,
        pair="",
        groups=tuple(process.pid for process in processes if process is not None),
        ready=lambda: _ready(lab),
    )


def _ready(lab: Lab) -> bool:
    """Every service is, and where there is a hub the target has been welcomed by it."""
    hub = "draft" not in lab.services or lab.services["target"].hubs_usable > 0
    return hub and all(service.ready for service in lab.services.values())
