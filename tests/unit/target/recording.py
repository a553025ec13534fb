"""A bus that records what a star sends, and hands out what a test puts in."""

from __future__ import annotations

from typing import Any

from services.target.cost import StepShape
from services.target.features import Features
from services.target.guess import Guess
from services.target.sequence import Sequence
from services.target.star import Star
from services.target.stats import StarStats
from starsd.bus.interface import TargetEvent
from starsd.protocol.frames import Submit
from starsd.protocol.messages import (
    Facts,
    Have,
    Hello,
    Limits,
    Proposal,
    Propose,
    Status,
    ToHub,
    Welcome,
)
from starsd.protocol.pods import DrafterKind, HubPod, Offer, PodState
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import pack_tokens, prefix_digest
from starsd.settings.target import TargetSettings
from tests.scripted import HashModel

FACTS = Facts(tokenizer="tok", vocab_size=100, revision="rev", max_length=512)
SESSION = "t1:b1"


class RecordingBus:
    """A TargetBus without a broker."""

    reply_key = "{starsd}:out:t1:b1"

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[tuple[str, ToHub]] = []
        self.arrived: list[TargetEvent] = []

    def send_first(self, offer_digest: str, job: Propose) -> None:
        self.sent.append((offer_digest, job))

    def send_hub(self, hub: str, message: ToHub) -> None:
        self.sent.append((hub, message))

    def flush(self) -> None: ...

    def receive(self) -> list[TargetEvent]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None: ...

    def jobs(self) -> list[Propose]:
        return [message for _, message in self.sent if isinstance(message, Propose)]

    def hellos(self) -> list[str]:
        return [queue for queue, message in self.sent if isinstance(message, Hello)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make_offer(tokenizer: str = "tok", max_depth: int = 8) -> Offer:
    return Offer(
        kind=DrafterKind.LM,
        model="m",
        revision="r",
        tokenizer=tokenizer,
        vocab_size=100,
        max_length=512,
        limits=Limits(max_depth=max_depth),
    )


def make_pod(
    pod_id: str = "hub", boot: str = "h1", state: PodState = PodState.READY, tokenizer: str = "tok"
) -> HubPod:
    return HubPod(id=pod_id, boot=boot, state=state, offer=make_offer(tokenizer), free_slots=4)


def make_features(context: int = 256) -> Features:
    """Of a runner that gives none."""
    return Features(HashModel(TargetSettings(max_sequences=1)).runner(), context)


FLAT = StepShape({1: 0.01})
STEEP = StepShape({1: 0.01, 2: 0.011})


def make_star(bus: RecordingBus, clock: Clock, shape: StepShape = FLAT, **settings: Any) -> Star:
    """A star whose plain step takes 10 ms."""
    given: dict[str, Any] = {"id": "t1", "boot": "b1", "draft_depth": 4, **settings}
    return Star(bus, FACTS, TargetSettings(**given), clock, StarStats(), make_features(), shape)


def make_sequence(
    prompt: list[int] | None = None, max_tokens: int = 32, seq: str = "s"
) -> Sequence:
    submit = Submit(
        id=seq,
        prompt=prompt or [1, 2, 3, 4],
        sampling=SamplingParams(seed=1),
        max_tokens=max_tokens,
        eos=(99,),
    )
    return Sequence.of(submit, max_length=512)


def welcome(star: Star, bus: RecordingBus, hub: str = "hub", boot: str = "h1") -> None:
    star.update_hubs([make_pod(hub, boot)])
    bus.arrived.append(Welcome(session=SESSION, hub=hub, hub_boot=boot, limits=Limits(max_depth=8)))
    star.receive()


def make_reply(
    job: Propose,
    tokens: list[int],
    *,
    status: Status = Status.OK,
    have: list[int] | None = None,
    **changes: Any,
) -> Proposal:
    """What a hub that did ``job`` would answer; ``have`` is the prefix it vouches for."""
    fields: dict[str, Any] = {
        "session": job.session,
        "seq": job.seq,
        "epoch": job.epoch,
        "round": job.round,
        "attempt": job.attempt,
        "status": status,
        "tokens": pack_tokens(tokens),
        "parents": None,
        "have": Have(len(have or []), prefix_digest(have or [])),
        "max_depth": 8,
        "retry_after_ms": 0,
        "hub": "hub",
        "hub_boot": "h1",
        "queue_us": 0,
        "service_us": 1000,
        **changes,
    }
    return Proposal(**fields)


def attached(star: Star, bus: RecordingBus) -> Sequence:
    """A sequence past prefill whose first job the hub has answered, and one token emitted."""
    sequence = make_sequence()
    star.admit(sequence)
    bus.arrived.append(make_reply(bus.jobs()[-1], [], have=sequence.tokens))
    star.receive()
    sequence.accept([5], Guess([]))
    return sequence
