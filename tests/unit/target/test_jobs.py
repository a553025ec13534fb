"""What a target asks its hubs for, message by message."""

from __future__ import annotations

import pytest

from services.target.depth import Plan
from services.target.guess import Guess
from services.target.jobs import Jobs
from services.target.sending import FIRST_REPLY_S
from services.target.star import Star
from starsd.protocol.messages import MAX_TOKENS_PER_ENTRY, Close, Status
from starsd.protocol.tokens import unpack_tokens
from tests.unit.target.recording import (
    SESSION,
    STEEP,
    Clock,
    RecordingBus,
    attached,
    make_features,
    make_offer,
    make_pod,
    make_reply,
    make_sequence,
    make_star,
    welcome,
)


def test_first_job_goes_to_the_offers_queue_without_depth(star: Star, bus: RecordingBus) -> None:
    sequence = make_sequence()
    star.admit(sequence)
    queue, job = bus.sent[-1]
    assert queue == make_offer().digest
    assert job == bus.jobs()[0]
    assert (bus.jobs()[0].base, bus.jobs()[0].depth) == (0, 0)
    assert unpack_tokens(bus.jobs()[0].tokens) == sequence.tokens


def test_nothing_more_until_the_first_reply(star: Star, bus: RecordingBus, clock: Clock) -> None:
    sequence = make_sequence()
    star.admit(sequence)
    sequence.accept([5], Guess([]))
    star.request([sequence])
    assert len(bus.jobs()) == 1
    clock.now += FIRST_REPLY_S
    star.request([sequence])
    again = bus.jobs()[1]
    assert (again.round, again.attempt, again.depth) == (0, 1, 4)
    assert unpack_tokens(again.tokens) == sequence.tokens


def test_next_job_sends_only_what_the_hub_lacks(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    queue, job = bus.sent[-1]
    assert queue == "hub"
    assert job == bus.jobs()[-1]
    assert (bus.jobs()[-1].base, bus.jobs()[-1].depth, bus.jobs()[-1].round) == (4, 4, 1)
    assert unpack_tokens(bus.jobs()[-1].tokens) == [5]


def test_newer_round_supersedes_a_late_one(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    sequence.accept([6], Guess([]))
    star.request([sequence])
    assert [job.round for job in bus.jobs()] == [0, 1, 2]
    assert unpack_tokens(bus.jobs()[-1].tokens) == [5, 6]


def test_depth_never_passes_the_end_of_the_answer(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    sequence.limit = len(sequence.tokens) + 3
    star.request([sequence])
    assert bus.jobs()[-1].depth == 2
    sequence.limit = len(sequence.tokens) + 1
    sent = len(bus.sent)
    star.request([sequence])
    assert len(bus.sent) == sent


@pytest.mark.parametrize(("wanted", "depth"), [(None, 1), (2, 2), (9, 4)])
def test_request_that_names_a_depth_gets_it_whatever_pays(
    steep: Star, bus: RecordingBus, wanted: int | None, depth: int
) -> None:
    sequence = attached(steep, bus)
    sequence.draft_depth = wanted
    for _ in range(50):
        steep.verified(sequence, Guess([6, 7, 8, 9], asked=4, allowed=15), [0])
    steep.request([sequence])
    assert bus.jobs()[-1].depth == depth


def test_job_tells_what_tokens_cost_to_verify_and_what_waiting_costs(
    steep: Star, bus: RecordingBus
) -> None:
    sequence = attached(steep, bus)
    steep.request([sequence])
    job = bus.jobs()[-1]
    assert job.rate > 100
    assert job.prices == pytest.approx([job.rate] * job.max_nodes, abs=1), "a ms each"


def test_where_nobody_waits_waiting_costs_nothing(steep: Star, bus: RecordingBus) -> None:
    sequence = attached(steep, bus)
    steep._hubs.known["hub"].observe(latency_s=0.006, service_s=0.004, levels=4)
    steep.plain_step_s = 0.001
    steep.request([sequence])
    assert (bus.jobs()[-1].depth, bus.jobs()[-1].rate) == (4, 0)
    assert all(bus.jobs()[-1].prices)


def test_where_depth_is_fixed_nothing_has_a_price(bus: RecordingBus, clock: Clock) -> None:
    star = make_star(bus, clock, STEEP, depth_control="fixed")
    welcome(star, bus)
    star.request([attached(star, bus)])
    assert (bus.jobs()[-1].prices, bus.jobs()[-1].rate) == ([], 0)


def test_drafting_off_plans_and_sends_nothing(
    bus: RecordingBus, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    star = make_star(bus, clock, drafting=False)
    welcome(star, bus)
    sequence = make_sequence()
    star.admit(sequence)
    sequence.accept([5], Guess([]))
    assert sequence.decoding
    monkeypatch.setattr(star.control, "plan", None)
    star.request([sequence])
    assert bus.sent == []


def test_a_client_may_decline_proposals_or_bound_them(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    sequence = attached(star, bus)
    sequence.draft_depth = 2
    star.request([sequence])
    assert bus.jobs()[-1].depth == 2
    sent = len(bus.sent)
    alone = make_sequence(seq="alone")
    alone.draft_depth = 0
    alone.cached = len(alone.tokens) - 1
    star.admit(alone)
    star.request([alone])
    assert len(bus.sent) == sent


def test_long_prefix_goes_in_several_entries_of_which_the_last_drafts(bus: RecordingBus) -> None:
    sequence = make_sequence(prompt=[7] * (2 * MAX_TOKENS_PER_ENTRY + 5))
    jobs, pod = Jobs(bus, SESSION, make_features()), make_pod()
    jobs.first(sequence, pod.offer, Plan(4), 0.0)
    sequence.star.have = MAX_TOKENS_PER_ENTRY
    jobs.next(sequence, pod, Plan(4), 0.0)
    sizes = [(job.base, len(job.tokens) // 4, job.depth) for job in bus.jobs()]
    part = MAX_TOKENS_PER_ENTRY
    assert sizes == [(0, part, 0), (part, part, 0), (2 * part, 5, 4)]
    assert [job.round for job in bus.jobs()] == [0, 1, 2]


def test_forgotten_sequence_is_closed_at_its_hub(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    star.forget(sequence)
    assert bus.sent[-1] == ("hub", Close(session=SESSION, seq="s"))


def test_sequence_that_ended_before_its_first_reply_is_closed_when_that_comes(
    star: Star, bus: RecordingBus
) -> None:
    """Else it would hold a slot of the hub until it is thrown out as idle."""
    sequence = make_sequence()
    star.admit(sequence)
    star.forget(sequence)
    job = bus.jobs()[-1]
    bus.arrived.append(make_reply(job, [], status=Status.REFUSED))
    star.receive()
    assert len(bus.jobs()) == len(bus.sent) - 1  # but for the hello
    bus.arrived.append(make_reply(job, [], have=sequence.tokens))
    star.receive()
    assert bus.sent[-1] == ("hub", Close(session=SESSION, seq="s"))


def test_no_jobs_while_redis_is_down(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    bus.connected = False
    sent = len(bus.sent)
    star.request([sequence])
    assert len(bus.sent) == sent
    assert sequence.star.miss == "redis_down"
