"""The step loop's process: builds runner, bus and star from the settings, then runs."""

from __future__ import annotations

import socket
import statistics
import time

import structlog

from services.target.star import Star
from services.target.stats import StarStats
from services.target.step import TargetLoop
from starsd.bus.absent import AbsentBus
from starsd.bus.interface import TargetBus
from starsd.bus.target import RedisTargetBus
from starsd.engine.interface import Row, Runner
from starsd.engine.loading import load_model
from starsd.errors import StarsdError
from starsd.log import configure_logging
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import Failed, Started, ToLoop
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Facts
from starsd.settings import TargetSettings

log = structlog.get_logger()

WARM_UP_STEPS = 3


def run_target_loop(settings: TargetSettings, sock: socket.socket) -> None:
    """Load the model, report Started (or Failed), and serve until told to stop."""
    configure_logging("target-loop", settings.log_level, as_json=settings.log_json)
    channel: LoopChannel[ToLoop] = LoopChannel(sock, ToLoop)
    try:
        loop = build(settings, channel)
    except StarsdError as error:
        channel.send(Failed(id=None, error=error.body()))
        return
    loop.run()


def build(settings: TargetSettings, channel: LoopChannel[ToLoop]) -> TargetLoop:
    """Raises StarsdError when the model cannot be loaded or run."""
    model = load_model(settings)
    runner = model.runner()
    facts = Facts(
        tokenizer=model.tokenizer().fingerprint,
        vocab_size=runner.vocab_size,
        revision=runner.revision,
        max_length=runner.max_length,
    )
    stats = StarStats()
    star = Star(connect(settings), facts, settings, time.monotonic, stats)
    star.plain_step_s = plain_step_seconds(runner)
    channel.send(started(settings, runner))
    return TargetLoop(runner, star, channel, settings, stats)


def connect(settings: TargetSettings) -> TargetBus:
    if not settings.redis_url:
        return AbsentBus()
    keys = Keys(settings.namespace)
    return RedisTargetBus(settings.redis_url, keys, settings.id, settings.boot)


def plain_step_seconds(runner: Runner) -> float:
    """Seconds of a plain decode step of one row: the wait budget's unit until steps tell more."""
    times = []
    for position in range(WARM_UP_STEPS):
        begin = time.monotonic()
        runner.forward([Row(slot=0, tokens=[0], start=position)])
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def started(settings: TargetSettings, runner: Runner) -> Started:
    return Started(
        max_length=runner.max_length,
        capacity=runner.slots,
        fingerprint=runner.fingerprint,
        facts_line=f"{settings.model} {settings.dtype} on {settings.device}, "
        f"{runner.slots} slots of {runner.max_length}",
    )
