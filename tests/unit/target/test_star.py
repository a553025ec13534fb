"""The target's conversation with hubs, message by message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.target.depth import Plan
from services.target.greeting import MAX_HUBS, SESSION_REFUSED_S
from services.target.guess import NOTHING, Guess, Source
from services.target.jobs import MAX_ATTEMPTS, Jobs
from services.target.sequence import Sequence
from services.target.star import BAD_PAUSE_S, FIRST_REPLY_S, REJOIN_JITTER_S, Star
from starsd.bus.interface import Garbage, QueueGone, Reconnected
from starsd.protocol.messages import (
    MAX_TOKENS_PER_ENTRY,
    Close,
    Limits,
    Refused,
    Status,
    Welcome,
)
from starsd.protocol.pods import PodState
from starsd.protocol.tokens import unpack_tokens
from tests.unit.target.recording import (
    SESSION,
    Clock,
    RecordingBus,
    make_features,
    make_offer,
    make_pod,
    make_reply,
    make_sequence,
    make_star,
    welcome,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


@pytest.fixture
def star(bus: RecordingBus, clock: Clock) -> Star:
    star = make_star(bus, clock)
    welcome(star, bus)
    return star


def attached(star: Star, bus: RecordingBus) -> Sequence:
    """A sequence past prefill whose first job the hub has answered, and one token emitted."""
    sequence = make_sequence()
    star.admit(sequence)
    bus.arrived.append(make_reply(bus.jobs()[-1], [], have=sequence.tokens))
    star.receive()
    sequence.accept([5], Guess([]))
    return sequence


# -- greeting ------------------------------------------------------------------------------------


def test_greets_compatible_hubs_once(star: Star, bus: RecordingBus) -> None:
    star.update_hubs([make_pod()])
    assert bus.hellos() == ["hub"]
    assert star.usable_hubs == 1


def test_e19_incompatible_hub_is_neither_greeted_nor_used(bus: RecordingBus, clock: Clock) -> None:
    star = make_star(bus, clock)
    star.update_hubs([make_pod(tokenizer="other")])
    star.admit(make_sequence())
    assert bus.sent == []
    assert star.usable_hubs == 0


def test_only_so_many_hubs_are_greeted_and_the_one_in_use_stays(
    star: Star, bus: RecordingBus
) -> None:
    """A registry full of strangers (a restart storm, a stale key) must not cost a step."""
    others = [make_pod(f"a{number}") for number in range(2 * MAX_HUBS)]
    strangers = [make_pod(f"b{number}", tokenizer="other") for number in range(MAX_HUBS)]
    for _ in range(3):
        star.update_hubs([*strangers, *others, make_pod()])
    assert len(set(bus.hellos())) == MAX_HUBS
    assert star.usable_hubs == 1


def test_silent_hub_is_greeted_again_until_it_answers(bus: RecordingBus, clock: Clock) -> None:
    """The first hello or its welcome may be lost, and nothing else would ever ask again."""
    star = make_star(bus, clock)
    star.update_hubs([make_pod()])
    welcome(star, bus)
    star.update_hubs([make_pod()])
    assert bus.hellos() == ["hub", "hub"]


def test_no_job_before_the_welcome(bus: RecordingBus, clock: Clock) -> None:
    star = make_star(bus, clock)
    star.update_hubs([make_pod()])
    star.admit(make_sequence())
    assert bus.jobs() == []


@pytest.mark.parametrize(
    ("session", "boot"), [("other:session", "h1"), (SESSION, "older incarnation")]
)
def test_welcome_for_someone_else_is_ignored(
    bus: RecordingBus, clock: Clock, session: str, boot: str
) -> None:
    star = make_star(bus, clock)
    star.update_hubs([make_pod()])
    bus.arrived.append(
        Welcome(session=session, hub="hub", hub_boot=boot, limits=Limits(max_depth=8))
    )
    star.receive()
    assert star.usable_hubs == 0


def test_refused_session_is_not_used(bus: RecordingBus, clock: Clock) -> None:
    star = make_star(bus, clock)
    star.update_hubs([make_pod()])
    bus.arrived.append(Refused(session=SESSION, hub="hub", hub_boot="h1", reason="full"))
    star.receive()
    star.admit(make_sequence())
    assert bus.jobs() == []


def test_hub_without_room_is_asked_again_after_a_while(bus: RecordingBus, clock: Clock) -> None:
    star = make_star(bus, clock)
    star.update_hubs([make_pod()])
    bus.arrived.append(Refused(session=SESSION, hub="hub", hub_boot="h1", reason="full"))
    star.receive()
    star.update_hubs([make_pod()])
    assert bus.hellos() == ["hub"]
    clock.now += SESSION_REFUSED_S
    star.update_hubs([make_pod()])
    assert bus.hellos() == ["hub", "hub"]


def test_new_incarnation_is_greeted_anew(star: Star, bus: RecordingBus) -> None:
    star.update_hubs([make_pod(boot="h2")])
    assert bus.hellos() == ["hub", "hub"]
    assert star.usable_hubs == 0


# -- jobs ----------------------------------------------------------------------------------------


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
    star: Star, bus: RecordingBus, wanted: int | None, depth: int
) -> None:
    sequence = attached(star, bus)
    sequence.draft_depth = wanted
    for _ in range(50):
        star.verified(sequence, Guess([6, 7, 8, 9]), [0])
        for tokens in (1, 5):
            star.control.step_time.note(tokens, 0.01 + 0.002 * tokens)
    star.request([sequence])
    assert bus.jobs()[-1].depth == depth


def test_drafting_off_sends_nothing(bus: RecordingBus, clock: Clock) -> None:
    star = make_star(bus, clock, drafting=False)
    welcome(star, bus)
    star.admit(make_sequence())
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


# -- replies -------------------------------------------------------------------------------------


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


# -- loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [None, PodState.DRAINING])
def test_sequences_leave_a_hub_that_is_gone_or_drains(
    star: Star, bus: RecordingBus, clock: Clock, state: PodState | None
) -> None:
    sequence = attached(star, bus)
    star.update_hubs([make_pod(state=state)] if state else [])
    assert sequence.star.hub is None
    assert sequence.star.epoch == 1
    assert star.usable_hubs == 0


def test_queue_gone_means_hub_gone(star: Star, bus: RecordingBus) -> None:
    sequence = attached(star, bus)
    bus.arrived.append(QueueGone("{starsd}:q:hub"))
    star.receive()
    assert sequence.star.hub is None


def test_reconnect_greets_again_and_forgets_what_was_outstanding(
    star: Star, bus: RecordingBus
) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    bus.arrived.append(Reconnected())
    star.receive()
    assert bus.hellos() == ["hub", "hub"]
    assert not sequence.star.outstanding


def test_hub_that_cannot_read_a_job_is_not_sent_the_whole_text_at_once(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    sent = len(bus.jobs())
    bus.arrived.append(make_reply(bus.jobs()[-1], [], status=Status.BAD))
    star.receive()
    star.request([sequence])
    assert len(bus.jobs()) == sent
    clock.now += BAD_PAUSE_S + REJOIN_JITTER_S
    star.request([sequence])
    assert (bus.jobs()[-1].epoch, bus.jobs()[-1].base) == (1, 0)


def test_sequence_of_a_hub_that_stays_late_moves_once_another_answers(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    sequence = attached(star, bus)
    for number in range(20):
        star.request([sequence])
        star.step_over([sequence])
        sequence.accept([number], Guess([]))
        clock.now += 0.5
    assert star.breakers_open == 1
    assert sequence.star.hub == "hub"
    star.update_hubs([make_pod(), make_pod("other")])
    bus.arrived.append(
        Welcome(session=SESSION, hub="other", hub_boot="h1", limits=Limits(max_depth=8))
    )
    star.receive()
    for _ in range(2):
        star.request([sequence])
        clock.now += REJOIN_JITTER_S
    star.request([sequence])
    queue, job = bus.sent[-1]
    assert sequence.star.hub is None
    assert queue == make_offer().digest
    assert job == bus.jobs()[-1]
    assert (bus.jobs()[-1].epoch, bus.jobs()[-1].base) == (1, 0)


# -- waiting -------------------------------------------------------------------------------------


def test_due_within_the_budget_after_the_job(star: Star, bus: RecordingBus, clock: Clock) -> None:
    sequence = attached(star, bus)
    assert star.due_until(sequence) is None
    star.request([sequence])
    assert star.due_until(sequence) == pytest.approx(clock.now + 0.01)


def test_not_due_when_the_hub_is_known_to_be_slower(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    sequence = attached(star, bus)
    star.request([sequence])
    clock.now += 0.05
    star.receive()
    clock.now += 0.01
    bus.arrived.append(make_reply(bus.jobs()[-1], [6], have=sequence.tokens, service_us=50_000))
    star.receive()
    sequence.accept([6, 7], sequence.proposal)
    sequence.proposal = Guess([])
    star.request([sequence])
    assert star.due_until(sequence) is None


def test_reply_that_came_during_the_step_counts_as_quick_as_the_hub_was(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    """A default budget of one plain step must not turn every probe into a miss."""
    sequence = attached(star, bus)
    star.request([sequence])
    star.receive()
    clock.now += 0.5
    bus.arrived.append(make_reply(bus.jobs()[-1], [6], have=sequence.tokens, service_us=1000))
    star.receive()
    sequence.accept([6, 7], sequence.proposal)
    sequence.proposal = Guess([])
    star.request([sequence])
    assert star.due_until(sequence) is not None


def test_three_late_steps_open_the_breaker_and_only_probes_go_out(
    star: Star, bus: RecordingBus, clock: Clock
) -> None:
    sequence = attached(star, bus)
    for token in (6, 7, 8):
        star.request([sequence])
        star.step_over([sequence])
        sequence.accept([token], Guess([]))
    assert star.breakers_open == 1
    sent = len(bus.jobs())
    for token in (9, 10, 11):
        star.request([sequence])
        assert star.due_until(sequence) is None
        sequence.accept([token], Guess([]))
    assert len(bus.jobs()) == sent + 1
    clock.now += 1.0
    star.receive()
    star.request([sequence])
    assert len(bus.jobs()) == sent + 2
    bus.arrived.append(make_reply(bus.jobs()[-1], [50], have=sequence.tokens))
    star.receive()
    star.step_over([sequence])
    assert star.breakers_open == 0
