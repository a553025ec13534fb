"""Settings of a gateway."""

from __future__ import annotations

from pydantic import Field

from starsd.settings.common import BusSettings, ServiceSettings, Texts


class GatewaySettings(ServiceSettings, BusSettings):
    """``python -m services.gateway``."""

    targets: Texts = Field(
        (), description="JSON list of target URLs that are always known, registry or not."
    )
    probe_interval_s: float = Field(
        0.5, gt=0, description="Seconds between HTTP probes of a target (and of a tripped hub)."
    )
    connect_timeout_s: float = Field(
        2.0, gt=0, description="Longest wait for a connection to a target, and for a probe."
    )
    target_lost_s: float = Field(
        10.0,
        gt=0,
        description="A target without a good probe or any event for this long loses its requests: "
        "moved if nothing was delivered, ended with an error if something was.",
    )
    request_timeout_s: float = Field(
        600.0, gt=0, description="Longest life of a request, queueing included."
    )
    drain_s: int = Field(
        5, ge=0, le=3600, description="Seconds that open requests get to end at shutdown."
    )
    keepalive_s: float = Field(
        15.0, gt=0, description="Silence in a stream after which a comment is sent."
    )
    prefix_margin: float = Field(
        0.5,
        ge=0,
        le=100,
        description="A request goes to the target that answered its beginning unless that has so "
        "many requests per slot more than another.",
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="Largest request body accepted."
    )
