"""How a target leaves hubs that fail it, and how long it waits for those it has."""

from __future__ import annotations

import pytest

from services.target.guess import Guess
from services.target.sending import REJOIN_JITTER_S
from services.target.sequence import Sequence
from services.target.star import BAD_PAUSE_S, Star
from starsd.bus.interface import QueueGone, Reconnected
from starsd.protocol.messages import Limits, Status, Welcome
from starsd.protocol.pods import PodState
from tests.unit.target.recording import (
    SESSION,
    Clock,
    RecordingBus,
    attached,
    make_offer,
    make_pod,
    make_reply,
)

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


def ask_on(star: Star, sequence: Sequence) -> None:
    """The proposal, of one token, was verified."""
    sequence.accept([6, 7], sequence.proposal)
    sequence.proposal = Guess([])
    star.request([sequence])


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
    ask_on(star, sequence)
    assert star.due_until(sequence) is None


@pytest.mark.parametrize(("unread", "due"), [(2, False), (8, True)])
def test_a_hub_that_had_much_to_read_is_not_taken_for_slow(
    star: Star, bus: RecordingBus, clock: Clock, unread: int, due: bool
) -> None:
    sequence = attached(star, bus)
    sequence.accept([5] * unread, Guess([]))
    star.request([sequence])
    clock.now += 0.05
    bus.arrived.append(make_reply(bus.jobs()[-1], [6], have=sequence.tokens, service_us=49_000))
    star.receive()
    ask_on(star, sequence)
    assert (star.due_until(sequence) is not None) == due


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
    ask_on(star, sequence)
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
