"""Sampling parameters as they travel: in client requests, to the step loop, and to the hub."""

from __future__ import annotations

from typing import Annotated

import msgspec

GREEDY_BELOW = 1e-5
"""Temperatures under this are plain argmax."""

Seed = Annotated[int, msgspec.Meta(ge=0)]
Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, msgspec.Meta(ge=-2.0, le=2.0)]
Bias = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]


class Penalties(msgspec.Struct, frozen=True, array_like=True):
    """Filled by the API issue; the pipeline has their place (before bias and temperature)."""

    frequency: Penalty = 0.0
    presence: Penalty = 0.0
    repetition: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] = 1.0


class SamplingParams(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Everything besides the logits that decides a token.

    The token at absolute position t is a function of (logits, these, t) alone; see
    ``starsd.sampling``. ``prompt_len`` separates prompt from output for penalties.
    """

    seed: Seed
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    top_p: Probability = 1.0
    min_p: Probability = 0.0
    prompt_len: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0
    penalties: Penalties | None = None
    bias: dict[int, Bias] | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW
