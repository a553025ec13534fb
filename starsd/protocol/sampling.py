"""Sampling parameters as they travel: in client requests, to the step loop, and to the hub."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

MAX_BIAS = 1024
"""Tokens with a bias: each job of a star's carries them all."""
GREEDY_BELOW = 1e-5
"""Temperatures under this are plain argmax."""

Seed = Annotated[int, msgspec.Meta(ge=0)]
Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, msgspec.Meta(ge=-2.0, le=2.0)]
Bias = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]


class Penalties(msgspec.Struct, frozen=True, array_like=True):
    """``frequency`` and ``presence`` weigh the output alone, ``repetition`` prompt and output."""

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
    bias: Annotated[dict[int, Bias], msgspec.Meta(max_length=MAX_BIAS)] | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


def choice_seed(seed: int, choice: int) -> int:
    """The seed of each of several answers to one request: the request's own for the first, for the
    others the first 8 bytes, little-endian, of BLAKE2b("starsd-choice"; seed, choice)."""
    if choice == 0:
        return seed
    data = seed.to_bytes(8, "little") + choice.to_bytes(8, "little")
    digest = hashlib.blake2b(data, digest_size=8, person=b"starsd-choice").digest()
    return int.from_bytes(digest, "little")
