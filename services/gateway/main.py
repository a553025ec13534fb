"""What ``python -m services.gateway`` runs."""

from __future__ import annotations

import asyncio
import sys

from services.gateway.gateway import running_gateway
from starsd.bus.registry import Registry
from starsd.errors import ConfigError
from starsd.service import run
from starsd.settings.gateway import GatewaySettings
from starsd.settings.loading import load


async def _main(settings: GatewaySettings, stop: asyncio.Event) -> None:
    url = settings.redis_url
    registry = Registry(url, settings.namespace) if url else None
    async with running_gateway(settings, registry, stop=stop):
        await stop.wait()


def main() -> None:
    """Exit code 1, with the reason, when the gateway cannot start."""
    try:
        settings = load(GatewaySettings)
        run("gateway", settings, lambda stop: _main(settings, stop))
    except ConfigError as error:
        sys.exit(f"gateway: {error.message}")
