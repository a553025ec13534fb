"""Settings of every service: frozen, read once at start from ``STARSD_*``, passed down.

Services of one deployment may share an environment, so a variable that another service owns is
fine; one that nobody owns is refused (``load``). docs/settings.md lists them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from starsd.errors import ConfigError
from starsd.settings.common import PREFIX, Settings
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.target import TargetSettings
from starsd.settings.up import UpSettings

SERVICES: tuple[type[Settings], ...] = (
    GatewaySettings,
    TargetSettings,
    DraftSettings,
    UpSettings,
)

S = TypeVar("S", bound=Settings)


def known_variables() -> frozenset[str]:
    """Every environment variable that some service reads."""
    return frozenset(PREFIX + name.upper() for cls in SERVICES for name in cls.model_fields)


def load(cls: type[S], **overrides: Any) -> S:
    """Settings of one service from the environment; ``overrides`` come from the command line.

    Raises:
        ConfigError: a bad value, or a ``STARSD_*`` variable that no service knows.
    """
    unknown = sorted(_unknown_variables(os.environ))
    if unknown:
        raise ConfigError(f"unknown settings {', '.join(unknown)}: no service reads them")
    try:
        return cls(**overrides)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def _unknown_variables(names: Iterable[str]) -> set[str]:
    ours = {name for name in names if name.startswith(PREFIX)}
    return ours - known_variables()


def _explain(error: ValidationError) -> str:
    """One line per bad setting: its variable, the value, and what would be right."""
    lines = []
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else item["type"]
        value = item["input"] if item["loc"] else item["ctx"]["value"]
        lines.append(f"{PREFIX}{name.upper()}={value!r}: {item['msg']}")
    return "; ".join(lines)
