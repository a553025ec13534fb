"""``starsd up``: the whole star on one machine, in the foreground."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import signal
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import httpx
from rich.console import Console
from rich.text import Text

from starsd.bus.server import embedded_redis
from starsd.cli.chat import TIMEOUT, first_model
from starsd.cli.console import LogView
from starsd.cli.plan import LOCAL, Plan, Wish, make_plan
from starsd.cli.ready import wait_ready
from starsd.cli.supervisor import Child, Patience, Supervisor
from starsd.errors import StarsdError
from starsd.process.ports import choose_port, free_ports
from starsd.service import cancel, stop_on_signal
from starsd.settings.common import PREFIX
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings
from starsd.settings.up import UpSettings

ENDING_S = 10.0
"""What a service takes to end once its open requests have."""


class Exit(IntEnum):
    """Exit codes of ``starsd up``."""

    STOPPED = 0  # by Ctrl-C or SIGTERM
    GAVE_UP = 1  # a process kept dying
    BAD_SETTING = 2
    NOT_READY = 3  # the gateway was not ready in time


@dataclass(frozen=True)
class Options:
    """The command line; None or empty leaves it to ``STARSD_*`` or the default."""

    targets: int | None = None
    draft: str = ""
    model: str = ""
    dtype: str = ""
    quantize: str = ""
    kv_memory: str = ""
    port: int | None = None
    redis_url: str = ""


def up(options: Options) -> Exit:
    """Start the star, keep it up, and end all of it.

    Every service's settings are checked first, so a bad one is told once. Raises ConfigError.
    """
    engine = _given(
        model=options.model,
        dtype=options.dtype,
        quantize=options.quantize,
        kv_memory=options.kv_memory,
    )
    settings = load(UpSettings, **_given(targets_count=options.targets))
    gateway = load(GatewaySettings, **_given(port=options.port, redis_url=options.redis_url))
    target = load(TargetSettings, **engine)
    draft = load(DraftSettings, **engine, **_given(draft=options.draft))
    named = {PREFIX + name.upper(): str(value) for name, value in engine.items()}
    with ExitStack() as stack:
        redis, redis_url = _redis(gateway.redis_url, stack)
        wish = Wish(
            star=secrets.token_hex(2),
            targets=settings.targets_count,
            model=draft.model,
            draft=draft.draft,
            depth=target.draft_depth,
            host=gateway.host,
            port=_port(gateway, "port"),
            metrics_port=_port(gateway, "metrics_port"),
            redis_url=redis_url,
            threads=target.threads,
            environment={**os.environ, **named},
        )
        plan = make_plan(wish, _cores(), free_ports(wish.ports_needed, LOCAL))
        patience = Patience(grace_s=target.drain_s + ENDING_S)
        return asyncio.run(_run(plan, (*redis, *plan.children), settings.ready_timeout_s, patience))


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value not in (None, "")}


def _port(gateway: GatewaySettings, name: str) -> int:
    """A port the user named must be had; the default one gives way to a free one."""
    return choose_port(
        gateway.host, getattr(gateway, name), insist=name in gateway.model_fields_set
    )


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _redis(url: str, stack: ExitStack) -> tuple[list[Child], str]:
    """The user's Redis, or one of our own in a folder that goes with ``stack``."""
    if url:
        return [], url
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="starsd-")))
    command, url = embedded_redis(folder)
    return [Child("redis", tuple(command), dict(os.environ), stops_last=True)], url


async def _run(
    plan: Plan, children: Sequence[Child], ready_timeout_s: float, patience: Patience
) -> Exit:
    log = LogView([child.name for child in children])
    log.say(f"starting {', '.join(child.name for child in children)}")
    if plan.hint:
        log.say(plan.hint)
    with stop_on_signal() as stop:
        # The terminal was closed.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.set)
        keeping = asyncio.create_task(Supervisor(children, log.show, patience).run(stop))
        opening = asyncio.create_task(_open(plan, log, ready_timeout_s))
        try:
            await asyncio.wait([keeping, opening], return_when=asyncio.FIRST_COMPLETED)
            ready = opening.result() if opening.done() else None
            if ready is False:
                stop.set()
            reason = await keeping
        finally:
            await cancel(opening, keeping)
    log.say(reason or "stopped")
    if reason:
        return Exit.GAVE_UP
    return Exit.NOT_READY if ready is False else Exit.STOPPED


async def _open(plan: Plan, log: LogView, timeout_s: float) -> bool:
    """Whether the gateway is ready in time; tells how it goes, and then where it listens."""
    log.say("a first start also converts the model: about 20 s")
    missing = await wait_ready(plan.ready_urls, timeout_s, log.ready)
    if "gateway" in missing:
        log.say(f"not ready after {timeout_s:g} s: {', '.join(sorted(missing))}")
        return False
    if missing:
        log.say(f"serving, but not ready yet: {', '.join(sorted(missing))}")
    try:
        announce(plan.url, await asyncio.to_thread(_model_name, plan.url))
    except StarsdError as error:
        log.say(error.message)
        return False
    return True


def _model_name(url: str) -> str:
    with httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
        return first_model(url, client)


def announce(url: str, model: str) -> None:
    """Where the star listens, and a curl to paste, on stdout."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello!"}]}
    curl = (
        f"curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body))}"
    )
    lines = f"\nStarSD serves {model} at {url}/v1   (Ctrl-C ends it)\n\n{curl}\n"
    Console(highlight=False).print(Text(lines), soft_wrap=True)
