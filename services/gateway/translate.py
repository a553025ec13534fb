"""A validated OpenAI request to what targets are asked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from services.gateway import chat, completions
from services.gateway.messages import Message
from services.gateway.options import Options
from services.gateway.responses import Heading
from services.gateway.schema import ChatRequest, CompletionRequest
from services.gateway.stream import Asked
from services.gateway.writer import Writer
from starsd.protocol.events import Generate
from starsd.protocol.sampling import Penalties, SamplingParams

SEED_BITS = 64


def chat_asked(body: ChatRequest, request_id: str) -> Asked:
    """``request_id`` is ours, never the client's. A missing seed is drawn here, once."""
    messages = [message_fields(message) for message in body.messages]
    logprobs = body.top_logprobs if body.logprobs else None
    fields = {"tools": body.tool_use, "logprobs": logprobs, **_common(body, request_id)}
    request = Generate(messages=messages, **fields)
    heading = Heading(id=request_id, whole=chat.WHOLE, chunk=chat.CHUNK)
    if body.service_tier is not None:
        heading.service_tier = "default"
    wanted = {"logprobs": body.logprobs, "stream": body.stream}
    writers = [chat.ChatWriter(index, **wanted) for index in range(body.n)]
    return _asked(body, [request], heading, writers)


def completion_asked(body: CompletionRequest, request_id: str) -> Asked:
    """A request for each prompt, all with one seed: what follows a prompt is the same as if it had
    come alone."""
    common = {"logprobs": body.logprobs, **_common(body, request_id)}
    requests = [Generate(prompt=prompt, **common) for prompt in body.prompt]
    heading = Heading(id=request_id, whole=completions.OBJECT, chunk=completions.OBJECT)
    choices, logprobs = range(body.n * len(requests)), body.logprobs is not None
    writers = [completions.CompletionWriter(index, logprobs=logprobs) for index in choices]
    return _asked(body, requests, heading, writers)


def _asked(
    body: Options, requests: Sequence[Generate], heading: Heading, writers: Sequence[Writer]
) -> Asked:
    return Asked(
        requests,
        heading,
        writers,
        include_usage=body.include_usage,
        usage_in_every_chunk=body.usage_in_every_chunk,
        origins=body.starsd.origins,
    )


def _common(body: Options, request_id: str) -> dict[str, Any]:
    return {
        "id": request_id,
        "model": body.model,
        "sampling": _sampling(body),
        "n": body.n,
        "max_tokens": body.token_limit,
        "stop": tuple(body.stop),
        "stop_token_ids": tuple(body.stop_token_ids),
        "ignore_eos": body.ignore_eos,
        "draft_depth": body.starsd.speculation,
        "grammar": body.grammar,
    }


def _sampling(body: Options) -> SamplingParams:
    penalties = Penalties(body.frequency_penalty, body.presence_penalty, body.repetition_penalty)
    return SamplingParams(
        seed=_seed(body.seed),
        temperature=body.temperature,
        top_k=max(0, body.top_k),
        top_p=body.top_p,
        min_p=body.min_p,
        penalties=None if penalties == Penalties() else penalties,
        bias={int(token): value for token, value in body.logit_bias.items()} or None,
    )


def _seed(seed: int | None) -> int:
    """Any int64 as its two's complement u64."""
    return secrets.randbits(SEED_BITS) if seed is None else seed % 2**SEED_BITS


def message_fields(message: Message) -> dict[str, Any]:
    """As chat templates read it."""
    fields = message.model_dump(exclude_none=True)
    if message.role == "developer":
        fields["role"] = "system"
    return {"content": "", **fields}
