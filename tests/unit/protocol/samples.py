"""One plain message of each kind, for tests of everything that carries messages."""

from __future__ import annotations

from typing import Any

from starsd.protocol.keys import Keys
from starsd.protocol.messages import (
    Close,
    Facts,
    Foresight,
    Have,
    Hello,
    Limits,
    Proposal,
    Propose,
    Refused,
    Status,
    Welcome,
)
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import EMPTY_DIGEST, pack_tokens

REPLY_KEY = Keys("starsd").reply_stream("t1", "b1")


def propose(**changes: Any) -> Propose:
    fields: dict[str, Any] = {
        "session": "t1:b1",
        "seq": "s1",
        "epoch": 0,
        "round": 1,
        "attempt": 0,
        "reply_key": REPLY_KEY,
        "base": 0,
        "digest": EMPTY_DIGEST,
        "tokens": pack_tokens([1, 2, 49_151]),
        "depth": 4,
        "max_nodes": 0,
        "ttl_ms": 500,
        "sampling": SamplingParams(seed=7, temperature=0.8, top_k=40, top_p=0.95),
    }
    return Propose(**fields | changes)


def proposal(**changes: Any) -> Proposal:
    fields: dict[str, Any] = {
        "session": "t1:b1",
        "seq": "s1",
        "epoch": 0,
        "round": 1,
        "attempt": 0,
        "status": Status.OK,
        "tokens": pack_tokens([5, 6]),
        "parents": None,
        "have": Have(3, EMPTY_DIGEST),
        "max_depth": 8,
        "retry_after_ms": 0,
        "hub": "h1",
        "hub_boot": "hb1",
        "queue_us": 12,
        "service_us": 3400,
    }
    return Proposal(**fields | changes)


def foresight(**changes: Any) -> Foresight:
    fields: dict[str, Any] = {
        "session": "t1:b1",
        "seq": "s1",
        "epoch": 0,
        "round": 1,
        "hub": "h1",
        "hub_boot": "hb1",
        "tokens": pack_tokens([5, 6, 7]),
        "parents": [-1, 0, -1],
    }
    return Foresight(**fields | changes)


def hello(**changes: Any) -> Hello:
    facts = Facts(tokenizer="tok", vocab_size=49_152, revision="rev", max_length=2048)
    fields: dict[str, Any] = {
        "session": "t1:b1",
        "target": "t1",
        "boot": "b1",
        "facts": facts,
        "reply_key": REPLY_KEY,
    }
    return Hello(**fields | changes)


def welcome() -> Welcome:
    return Welcome(
        session="t1:b1", hub="h1", hub_boot="hb1", limits=Limits(max_depth=8, max_length=2048)
    )


def refused() -> Refused:
    return Refused(session="t1:b1", hub="h1", hub_boot="hb1", reason="tokenizer differs")


def close(seq: str | None = "s1") -> Close:
    return Close(session="t1:b1", seq=seq)
