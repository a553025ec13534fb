"""What a target believes of a reply, and what it does then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.target.guess import NOTHING, Guess, Source
from services.target.jobs import MAX_ATTEMPTS
from services.target.sending import REJOIN_JITTER_S
from services.target.star import Star
from starsd.bus.interface import Garbage
from starsd.protocol.messages import Status
from starsd.protocol.tokens import unpack_tokens
from tests.unit.target.recording import Clock, RecordingBus, attached, make_offer, make_reply


def test_proposal_of_the_current_round_is_used(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    bus.arrived.append(make_reply(bus.jobs()[-1], [6, 7, 8, 9], have=sequence.tokens))
    star.receive()
    assert sequence.proposal.tokens == [6, 7, 8, 9]
    assert sequence.star.have == 5


def test_late_proposal_is_used_where_its_head_came_true(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    late = make_reply(bus.jobs()[-1], [6, 7, 8, 9], have=sequence.tokens)
    sequence.accept([6], Guess([]))
    star.request([sequence])
    bus.arrived.append(late)
    star.receive()
    assert sequence.proposal.tokens == [7, 8, 9]
    assert sequence.star.outstanding


TREE = Guess([6, 9, 7, 8], [-1, -1, 0, 0])


def test_tree_is_used_and_a_late_one_below_what_came_true(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    assert (bus.jobs()[-1].depth, bus.jobs()[-1].max_nodes) == (4, 15)
    reply = make_reply(bus.jobs()[-1], TREE.tokens, have=sequence.tokens, parents=TREE.parents)
    bus.arrived.append(reply)
    star.receive()
    assert sequence.proposal == TREE
    sequence.proposal = NOTHING
    sequence.accept([6], NOTHING)
    bus.arrived.append(reply)
    star.receive()
    assert sequence.proposal == Guess([7, 8], [-1, -1])


@pytest.mark.parametrize("drafted", [[], [6]])
def test_what_a_hub_left_out_counts_as_wrong(
    star: Star, bus: RecordingBus, drafted: list[int]
) -> None:
    """It does not believe in it; what is left out of an empty proposal no step will verify."""
    sequence = attached(star, bus)
    for _ in range(60):
        star.request([sequence])
        bus.arrived.append(make_reply(bus.jobs()[-1], drafted, have=sequence.tokens))
        star.receive()
        if guess := sequence.proposal:
            star.verified(sequence, guess, guess.path([6]))
        sequence.proposal = NOTHING
    assert sequence.record is not None
    rates = sequence.record.rates(15)
    assert rates[len(drafted)] < 0.3
    assert all(rate > 0.8 for rate in rates[: len(drafted)])


def test_tree_is_used_no_deeper_than_the_answer_goes(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    sequence.limit = len(sequence.tokens) + 2
    bus.arrived.append(
        make_reply(bus.jobs()[-1], TREE.tokens, have=sequence.tokens, parents=TREE.parents)
    )
    star.receive()
    assert sequence.proposal == Guess([6, 9], [-1, -1])


def test_reply_does_not_replace_a_long_repetition(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    sequence.proposal = Guess([8], source=Source.NGRAM)
    bus.arrived.append(make_reply(bus.jobs()[-1], [6, 7], have=sequence.tokens))
    star.receive()
    assert sequence.proposal.tokens == [8]
    assert sequence.star.have == 5


def test_late_proposal_is_dropped_where_its_head_did_not(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    late = make_reply(bus.jobs()[-1], [6, 7, 8, 9], have=sequence.tokens)
    sequence.accept([55], Guess([]))
    star.request([sequence])
    bus.arrived.append(late)
    star.receive()
    assert not sequence.proposal


@pytest.mark.parametrize(
    "changes",
    [
        {"session": "other"},
        {"seq": "other"},
        {"epoch": 7},
        {"round": 9},
        {"hub": "other"},
        {"hub_boot": "h0"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_reply_out_of_place_is_stale(
    star: Star, bus: RecordingBus, changes: dict[str, Any]
) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    bus.arrived.append(make_reply(bus.jobs()[-1], [6, 7], have=sequence.tokens, **changes))
    star.receive()
    assert not sequence.proposal
    assert sequence.star.outstanding


@pytest.mark.parametrize(
    ("tokens", "changes"),
    [
        ([6, 7, 8, 9, 10], {}),
        ([6, 100], {}),
        ([6, 7], {"tokens": b"123"}),
        ([6, 7], {"parents": [-1, -2]}),
        ([6, 6], {"parents": [-1, -1]}),
        ([6, 7, 8, 9, 10], {"parents": [-1, 0, 1, 2, 3]}),
        ([6, 7, 8, 9, 10, 11], {"parents": [-1, -1, 0, 2, 3, 4]}),
        (list(range(16)), {"parents": [-1] * 16}),
    ],
    ids=["too many", "vocabulary", "no u32", "no tree", "twins", "deep chain", "deep", "large"],
)
def test_malformed_proposal_is_dropped_and_the_round_is_over(
    star: Star, bus: RecordingBus, tokens: list[int], changes: dict[str, Any]
) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    reply = make_reply(bus.jobs()[-1], tokens, have=sequence.tokens)
    bus.arrived.append(msgspec.structs.replace(reply, **changes))
    star.receive()
    assert not sequence.proposal
    assert not sequence.star.outstanding
    assert sequence.star.miss == "bad"


def test_g7_duplicate_reply_changes_nothing(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    reply = make_reply(bus.jobs()[-1], [6, 7], have=sequence.tokens)
    bus.arrived += [reply, reply]
    star.receive()
    assert sequence.proposal.tokens == [6, 7]


def test_lie_about_what_the_hub_has_is_not_believed(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    reply = make_reply(bus.jobs()[-1], [], status=Status.EXPIRED, have=[9, 9, 9], retry_after_ms=0)
    bus.arrived.append(reply)
    star.receive()
    assert sequence.star.have == 0


def test_need_prefix_resends_the_round_from_what_is_there(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    job = bus.jobs()[-1]
    bus.arrived.append(make_reply(job, [], status=Status.NEED_PREFIX, have=[1, 2]))
    star.receive()
    again = bus.jobs()[-1]
    assert (again.round, again.attempt, again.base) == (job.round, 1, 2)
    assert unpack_tokens(again.tokens) == [3, 4, 5]


def test_endless_need_prefix_is_given_up(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    for _ in range(2 * MAX_ATTEMPTS):
        bus.arrived.append(make_reply(bus.jobs()[-1], [], status=Status.NEED_PREFIX, have=[]))
        star.receive()
    assert bus.jobs()[-1].attempt == MAX_ATTEMPTS
    assert not sequence.star.outstanding


def test_need_hello_greets_then_resends(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    bus.arrived.append(make_reply(bus.jobs()[-1], [], status=Status.NEED_HELLO, have=[]))
    star.receive()
    assert bus.hellos() == ["hub", "hub"]
    assert bus.jobs()[-1].base == 0
    assert unpack_tokens(bus.jobs()[-1].tokens) == sequence.tokens


def test_refused_sequence_rests_then_asks_any_hub(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    bus.arrived.append(
        make_reply(bus.jobs()[-1], [], status=Status.REFUSED, have=[], retry_after_ms=500)
    )
    star.receive()
    sent = len(bus.sent)
    star.request([sequence])
    assert len(bus.sent) == sent
    clock.now += 0.5 + REJOIN_JITTER_S
    star.request([sequence])
    queue, job = bus.sent[-1]
    assert queue == make_offer().digest
    assert job == bus.jobs()[-1]
    assert (bus.jobs()[-1].epoch, bus.jobs()[-1].base) == (1, 0)


def test_garbage_is_counted_and_harmless(star: Star, bus: RecordingBus) -> None:
    bus.arrived.append(Garbage("not msgpack"))
    star.receive()
    assert star.usable_hubs == 1
