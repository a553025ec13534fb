"""A validated OpenAI request to what a target is asked."""

from __future__ import annotations

import secrets
from typing import Any

from services.gateway.schema import ChatRequest, Message
from starsd.protocol.events import Generate
from starsd.protocol.sampling import SamplingParams

SEED_BITS = 64


def to_generate(body: ChatRequest, request_id: str) -> Generate:
    """``request_id`` is ours, never the client's. A missing seed is drawn here, once."""
    return Generate(
        id=request_id,
        model=body.model,
        messages=[_message(message) for message in body.messages],
        sampling=_sampling(body),
        max_tokens=body.token_limit,
        stop=tuple(body.stop),
    )


def _sampling(body: ChatRequest) -> SamplingParams:
    return SamplingParams(
        seed=_seed(body.seed),
        temperature=body.temperature,
        top_k=max(0, body.top_k),
        top_p=body.top_p,
        min_p=body.min_p,
    )


def _seed(seed: int | None) -> int:
    """Any int64 as its two's complement u64."""
    return secrets.randbits(SEED_BITS) if seed is None else seed % 2**SEED_BITS


def _message(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True)
    if message.role == "developer":
        fields["role"] = "system"
    return {"content": "", **fields}
