"""Whatever a hub says, the text is the target's own, nothing leaks, and it is counted."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from starsd.bus.interface import Job
from starsd.bus.memory import MemoryHubBus
from starsd.protocol.codec import encode
from starsd.protocol.messages import Have, Proposal, Status, ToTarget
from starsd.protocol.tokens import pack_tokens, unpack_tokens
from tests.identity.scripted_star import make_requests, make_star, plain_tokens, tokens

Twist = Callable[[Any, Proposal], list[Proposal | bytes]]


class TwistedBus(MemoryHubBus):
    """A real hub's bus on which somebody tampers with every proposal that drafts."""

    twist: Callable[[Proposal], list[Proposal | bytes]]
    choose = random.Random(7)
    kept: list[Proposal]

    def reply(self, reply_key: str, message: ToTarget) -> None:
        if not isinstance(message, Proposal) or not message.tokens:
            super().reply(reply_key, message)
            return
        for answer in self.twist(message):
            if isinstance(answer, bytes):
                self._broker.inject(reply_key, answer)
            else:
                super().reply(reply_key, answer)


def twisted(twist: Twist) -> type[TwistedBus]:
    return type("Twisted", (TwistedBus,), {"twist": twist, "kept": []})


def change(proposal: Proposal, **fields: Any) -> list[Proposal | bytes]:
    return [msgspec.structs.replace(proposal, **fields)]


def random_tokens(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    count = len(unpack_tokens(proposal.tokens))
    return change(proposal, tokens=pack_tokens(bus.choose.choices(range(256), k=count)))


def other_sequence(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    """The head of another request's proposal, so that answers would mix if it counted."""
    bus.kept.append(proposal)
    return change(proposal, tokens=bus.choose.choice(bus.kept[-6:]).tokens)


def wrong_session(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, session="someone:else")


def wrong_sequence(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    number = (int(proposal.seq[1:]) + 2) % 6
    return change(proposal, seq=f"r{number}")


def stale_round(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, round=max(0, proposal.round - 1))


def future_round(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, round=proposal.round + 1)


def too_many(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, tokens=proposal.tokens * 4)


def beyond_vocabulary(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, tokens=pack_tokens([2**32 - 1, *unpack_tokens(proposal.tokens)[1:]]))


def broken_tokens(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, tokens=proposal.tokens[:-1])


def broken_tree(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, parents=[7] * (len(proposal.tokens) // 4))


def duplicate(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return [proposal, proposal, proposal]


def reordered(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    """Holds every reply back until the next one, then sends both the wrong way round."""
    bus.kept.append(proposal)
    if len(bus.kept) < 2:
        return []
    late = list(reversed(bus.kept))
    bus.kept.clear()
    return [*late]


def lost(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return [proposal] if bus.choose.random() < 0.5 else []


def older_incarnation(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, hub_boot="before")


def replayed(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    """Everything ever said, again and again."""
    bus.kept.append(proposal)
    return [*bus.kept[-20:]]


def garbage(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return [bus.choose.randbytes(40), encode(proposal)[:-3], b""]


def silence(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return []


def false_have(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, have=Have(10**6, bus.choose.randbytes(8)))


def always_need_prefix(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, status=Status.NEED_PREFIX, tokens=b"")


def always_need_hello(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, status=Status.NEED_HELLO, tokens=b"")


def always_refused(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, status=Status.REFUSED, tokens=b"", retry_after_ms=2**31)


def no_depth(bus: TwistedBus, proposal: Proposal) -> list[Proposal | bytes]:
    return change(proposal, max_depth=0)


COUNTED: dict[Twist, str] = {
    wrong_session: "stale",
    future_round: "stale",
    older_incarnation: "stale",
    too_many: "malformed",
    beyond_vocabulary: "malformed",
    broken_tokens: "garbage",
    broken_tree: "malformed",
    garbage: "garbage",
    always_need_prefix: "need_prefix",
    always_need_hello: "need_hello",
    always_refused: "refused",
}
UNCOUNTED: list[Twist] = [
    random_tokens,
    other_sequence,
    wrong_sequence,
    stale_round,
    duplicate,
    reordered,
    lost,
    replayed,
    silence,
    false_have,
    no_depth,
]


@pytest.mark.parametrize("wait_budget", [1.0, 100.0], ids=["default", "patient"])
@pytest.mark.parametrize("twist", [*COUNTED, *UNCOUNTED], ids=lambda twist: twist.__name__)
def test_hostile_hub_cannot_change_the_text(twist: Twist, wait_budget: float) -> None:
    requests = make_requests()
    target = {"wait_budget": wait_budget, "probe_interval_s": 0.02}
    with make_star(bus_type=twisted(twist), target=target) as star:
        answers = star.run(requests)
        leaked = [pod.loop.open_requests for pod in star.pods]
        counted = sum(
            pod.metric("starsd:hub_replies_total", status=COUNTED.get(twist, "ok"))
            for pod in star.pods
        )
    assert tokens(answers) == plain_tokens(requests)
    assert leaked == [0, 0]
    assert counted > 0 or twist in (silence, lost)


def test_entries_nobody_could_have_sent_are_disposed_of_by_the_hub() -> None:
    """The other direction: garbage on the hub's queue stops nobody."""
    requests = make_requests()
    with make_star() as star:
        star.broker.inject(star.broker.keys.hub_queue("hub"), b"\xff not msgpack")
        answers = star.run(requests)
        assert star.broker.dead
    assert tokens(answers) == plain_tokens(requests)
    assert sum(answer.stats.accepted for answer in answers) > 50


def test_job_delivered_twice_is_drafted_once() -> None:
    requests = make_requests()

    class Doubled(MemoryHubBus):
        def receive(self, timeout_s: float, *, want_first: int) -> list[Job]:  # type: ignore[override]
            jobs = super().receive(timeout_s, want_first=want_first)
            return [job for job in jobs if isinstance(job, Job) for _ in range(2)]

    with make_star(bus_type=Doubled) as star:
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert sum(answer.stats.accepted for answer in answers) > 50
