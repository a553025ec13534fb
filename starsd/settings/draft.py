"""Settings of a hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from starsd.settings.common import PodSettings, ServiceSettings, from_json
from starsd.settings.model import Dtype, ModelSettings

Weight = Annotated[float, Field(ge=0.01, le=100)]


class DraftSettings(ServiceSettings, PodSettings, ModelSettings):
    """``python -m services.draft``. ``model`` is the target's; ``draft`` derives the drafter."""

    port: int = Field(8002, ge=0, le=65535, description="HTTP port; 0 takes a free one.")
    metrics_port: int = Field(
        9002, ge=0, le=65535, description="Port of /health and /metrics; 0 takes a free one."
    )
    dtype: Dtype = Field(
        "auto",
        description="Type of weights and KV cache. auto: as of a target, but a draft head that is "
        "compiled has its matrices in int8.",
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
        "which a head does with more knowledge, so that it only does for targets that are told, "
        "and little is foreseen where little is of use; on: whenever there is some.",
    )
    weights: Annotated[Mapping[str, Weight], NoDecode, BeforeValidator(from_json)] = Field(
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
