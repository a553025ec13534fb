"""What settings of several services have in common: frozen, read from ``STARSD_*``."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "STARSD_"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")


def from_json(value: object) -> object:
    """Texts are JSON. Left to pydantic-settings, a bad one is no ValidationError."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError('want JSON, like ["one", "two"] or {"one": 2}') from error


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(from_json)]
"""A JSON list of texts."""


class ServiceSettings(Settings):
    """What every service has."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="HTTP port; 0 takes a free one.")
    metrics_port: int = Field(
        9000, ge=0, le=65535, description="Port of /health and /metrics; 0 takes a free one."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe line that is logged."
    )
    log_json: bool = Field(False, description="One JSON object per log line instead of text.")


class BusSettings(Settings):
    """The star's arms and registry."""

    redis_url: str = Field(
        "", description="redis://, rediss:// or unix:// URL; empty: no star, serve alone."
    )
    namespace: str = Field(
        "starsd",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Prefix of all keys; stars with different ones may share a Redis.",
    )
    heartbeat_s: float = Field(
        1.0, gt=0, le=30, description="Seconds between registry writes and reads."
    )


class PodSettings(BusSettings):
    """What is published about a pod: targets and drafts."""

    id: str = Field(
        "",
        max_length=100,
        description="Pod id in the registry; empty draws one (the pod name, say).",
    )
    boot: str = Field(
        "", max_length=27, description="Incarnation of this pod; empty draws one at start."
    )
    pod_ttl_s: float = Field(
        5.0,
        gt=0,
        le=300,
        description="Seconds until a silent pod leaves the registry; more than STARSD_HEARTBEAT_S.",
    )

    @property
    def session(self) -> str:
        """Names this incarnation towards its peers."""
        return f"{self.id}:{self.boot}"

    @model_validator(mode="after")
    def _outlives_a_heartbeat(self) -> Self:
        if self.pod_ttl_s <= self.heartbeat_s:
            facts = {"value": self.pod_ttl_s, "beat": self.heartbeat_s}
            raise PydanticCustomError(
                "pod_ttl_s", "want more than STARSD_HEARTBEAT_S={beat}", facts
            )
        return self
