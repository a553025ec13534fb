"""The hub loop's process: builds drafter, offer and bus from the settings, then runs."""

from __future__ import annotations

import socket

import structlog

from services.draft.stats import HubStats
from services.draft.step import HubLoop
from starsd.bus.hub import RedisHubBus
from starsd.drafters.loading import load_drafter
from starsd.engine.interface import HeadRunner, Runner
from starsd.engine.loading import load_model
from starsd.errors import ConfigError
from starsd.process.channel import LoopChannel
from starsd.process.spawn import run_loop
from starsd.protocol.frames import Started, ToLoop
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Limits
from starsd.protocol.pods import DrafterKind, Needs, Offer
from starsd.sampling import compiled
from starsd.settings.draft import DraftSettings

log = structlog.get_logger()


def run_hub_loop(settings: DraftSettings, sock: socket.socket) -> None:
    """Load the draft model, report Started (or Failed), and draft until told to stop."""
    run_loop("draft", build, settings, sock)


def build(settings: DraftSettings, channel: LoopChannel[ToLoop]) -> HubLoop:
    """Raises StarsdError when the model cannot be loaded or there is no Redis to serve on."""
    if not settings.redis_url:
        raise ConfigError("STARSD_REDIS_URL='': a hub needs Redis, like redis://host:6379")
    compiled.install(settings.cache_dir)
    tokenizer = load_model(settings).vocabulary()
    draft = load_drafter(settings)
    offer = make_offer(settings, draft.runner, tokenizer, draft.needs)
    bus = RedisHubBus(
        settings.redis_url, Keys(settings.namespace), settings.id, settings.boot, offer.digest
    )
    channel.send(
        Started(
            max_length=offer.max_length,
            capacity=draft.drafter.slots,
            fingerprint=draft.fingerprint,
            facts_line=f"{settings.draft} draft of {settings.model} ({draft.fingerprint}) on "
            f"{settings.device}, {draft.drafter.slots} slots of {offer.max_length}",
            offer=offer,
        )
    )
    return HubLoop(draft.drafter, offer, bus, channel, settings, stats=HubStats(draft.parts))


def make_offer(
    settings: DraftSettings,
    runner: Runner | HeadRunner,
    tokenizer: str,
    needs: Needs | None = None,
) -> Offer:
    return Offer(
        kind=DrafterKind.LM if needs is None else DrafterKind.EAGLE,
        model=f"{settings.model}/{settings.draft}",
        revision=runner.revision,
        tokenizer=tokenizer,
        vocab_size=runner.vocab_size,
        max_length=runner.max_length,
        limits=Limits(max_depth=settings.max_depth, max_length=runner.max_length),
        needs=needs,
    )
