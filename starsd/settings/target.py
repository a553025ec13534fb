"""Settings of a target."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from starsd.settings.common import PodSettings, ServiceSettings, Texts
from starsd.settings.model import ModelSettings


class TargetSettings(ServiceSettings, PodSettings, ModelSettings):
    """``python -m services.target``."""

    port: int = Field(8001, ge=0, le=65535, description="HTTP port; 0 takes a free one.")
    metrics_port: int = Field(
        9001, ge=0, le=65535, description="Port of /health and /metrics; 0 takes a free one."
    )
    advertise_url: str = Field(
        "", description="URL under which the gateway reaches this target; empty: from host, port."
    )
    served_model_name: str = Field(
        "", description="Model name in the API; empty: last part of the model setting."
    )
    served_model_aliases: Texts = Field(
        (), description="JSON list of further names under which requests may ask for the model."
    )
    max_waiting: int = Field(
        64, ge=0, description="Requests open beyond STARSD_MAX_SEQUENCES before new ones get 429."
    )
    request_timeout_s: float = Field(
        600.0, gt=0, description="Longest life of a request, queueing included."
    )
    drain_s: int = Field(
        5, ge=0, le=3600, description="Seconds that open requests get to end at shutdown."
    )
    drafting: bool = Field(True, description="Ask hubs for proposals; false serves plain.")
    draft_depth: int = Field(6, ge=0, le=64, description="Longest proposal to ask a hub for.")
    depth_control: Literal["auto", "fixed"] = Field(
        "auto",
        description="auto: each round is as deep, and waited for or not, as promises the most "
        "tokens a second; fixed: always STARSD_DRAFT_DEPTH, waited for as long as the budget lets "
        "it.",
    )
    draft_context: int = Field(
        256,
        ge=1,
        le=65536,
        description="Positions whose hidden states are kept for a draft head that begins a text; "
        "it sees no more of what went before.",
    )
    draft_nodes: int = Field(
        15,
        ge=0,
        le=15,
        description="Most tokens of a proposal that is a tree, where a hub drafts trees; up to "
        "STARSD_DRAFT_DEPTH: chains only.",
    )
    run_ahead: Literal["auto", "on", "off"] = Field(
        "off",
        description="Have hubs tell what they draft in idle time, so that it can be verified "
        "without asking. auto: it is where that promises more tokens a second, and "
        "STARSD_DEPTH_CONTROL is auto; on: whenever there is some.",
    )
    ngram: int = Field(
        8,
        ge=0,
        le=15,
        description="Most tokens the target proposes by itself where the text repeats what it said "
        "before: without a hub's proposal, or when as many tokens match. 0: none.",
    )
    tool_parser: Literal["auto", "hermes", "llama3_json", "mistral"] = Field(
        "auto",
        description="Format of the model's tool calls. auto: what its chat template says, Hermes' "
        "where it says nothing.",
    )
    prefix_cache: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of STARSD_KV_MEMORY in which ended requests leave their prefixes, for "
        "requests that begin alike, until others need the memory. 0: none is left.",
    )
    wait_budget: float = Field(
        1.0, ge=0, le=1000, description="Longest wait for a proposal, in plain decode steps."
    )
    breaker_misses: int = Field(
        3, ge=1, description="Steps in a row without a timely reply that open a hub's breaker."
    )
    probe_interval_s: float = Field(
        0.5, gt=0, description="Seconds between probes of a hub whose breaker is open."
    )

    @property
    def reads_foresight(self) -> bool:
        return self.run_ahead == "on" or (self.run_ahead, self.depth_control) == ("auto", "auto")
