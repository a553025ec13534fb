"""The step loop's process: builds runner, bus and star from the settings, then runs."""

from __future__ import annotations

import socket
import time

import structlog

from services.target.cost import SIZES, measured
from services.target.features import Features
from services.target.star import Star
from services.target.stats import StarStats
from services.target.step import TargetLoop
from starsd.bus.absent import AbsentBus
from starsd.bus.interface import TargetBus
from starsd.bus.target import RedisTargetBus
from starsd.bus.waiting import Waiter
from starsd.engine.interface import Runner, SlotState
from starsd.engine.loading import load_model
from starsd.grammar.compiler import GrammarCompiler
from starsd.process.channel import LoopChannel
from starsd.process.parts import Parts
from starsd.process.spawn import run_loop
from starsd.protocol.frames import Started, ToLoop
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Facts
from starsd.sampling import compiled
from starsd.settings.target import TargetSettings

log = structlog.get_logger()

NO_ROLLBACK = "its state cannot be rolled back, so no proposal can be verified"


def run_target_loop(settings: TargetSettings, sock: socket.socket) -> None:
    """Load the model, report Started (or Failed), and serve until told to stop."""
    run_loop("target", build, settings, sock)


def build(settings: TargetSettings, channel: LoopChannel[ToLoop]) -> TargetLoop:
    """Raises StarsdError when the model cannot be loaded or run."""
    compiled.install(settings.cache_dir)
    model = load_model(settings)
    runner = model.runner()
    settings = as_the_state_allows(settings, runner)
    facts = Facts(
        tokenizer=model.vocabulary(),
        vocab_size=runner.vocab_size,
        revision=runner.revision,
        max_length=runner.max_length,
    )
    tokens = model.grammar_tokenizer(runner.vocab_size)
    grammars = GrammarCompiler(tokens, runner.vocab_size)
    shape = measured(runner, SIZES if settings.drafting else SIZES[:1])
    stats = StarStats(Parts(runner.parts))
    stats.drafting.set(settings.drafting)
    features = Features(runner, settings.draft_context, whole=settings.prefix_cache > 0)
    star = Star(connect(settings), facts, settings, time.monotonic, stats, features, shape)
    channel.send(started(settings, runner))
    wait = Waiter(settings.spin_ms / 1000)
    return TargetLoop(
        runner, star, channel, settings, stats, features, wait=wait, grammars=grammars
    )


def as_the_state_allows(settings: TargetSettings, runner: Runner) -> TargetSettings:
    """A wrong proposal must be taken back; a model that cannot is served without any. One that
    undoes its last row keeps one text, so it verifies chains only."""
    if runner.state is SlotState.ROLLS_BACK:
        return settings
    if settings.drafting and not runner.state.verifies:
        log.warning("serving without drafting", reason=NO_ROLLBACK, model=settings.model)
    return settings.model_copy(
        update={"drafting": settings.drafting and runner.state.verifies, "draft_nodes": 0}
    )


def connect(settings: TargetSettings) -> TargetBus:
    if not settings.redis_url:
        return AbsentBus()
    keys = Keys(settings.namespace)
    return RedisTargetBus(settings.redis_url, keys, settings.id, settings.boot)


def started(settings: TargetSettings, runner: Runner) -> Started:
    drafting = "" if runner.state.verifies else f", no drafting: {NO_ROLLBACK}"
    return Started(
        max_length=runner.max_length,
        capacity=runner.slots,
        fingerprint=runner.fingerprint,
        facts_line=f"{settings.model} ({runner.fingerprint}) on {settings.device}, "
        f"{runner.slots} slots of {runner.max_length}{drafting}",
    )
