"""The one suite of the star's arms, run against every implementation and server."""

from __future__ import annotations

import select
import time

import msgspec
import pytest

from starsd.bus.interface import Garbage, Job, QueueGone, Reconnected
from starsd.errors import ProtocolError
from starsd.protocol.codec import encode
from starsd.protocol.messages import MAX_ENTRY_BYTES, Proposal, Status, ToHub
from tests.integration.bus.arms import (
    KEYS,
    MIN_IDLE_S,
    OFFER,
    Arms,
    Hub,
    Target,
    for_a_while,
    until,
)
from tests.integration.bus.conftest import Ends
from tests.unit.protocol.samples import REPLY_KEY, close, hello, proposal, propose, welcome

Q_IN = KEYS.offer_queue(OFFER)
STICKY = KEYS.hub_queue("h1")


def pair(ends: Ends) -> tuple[Target, Hub]:
    """A target and a hub that have found the server; their first events are taken."""
    target, hub = ends.target(), ends.hub()
    join(target, hub)
    target.events.clear()
    return target, hub


def join(*both: Target | Hub, want_first: int = 64) -> None:
    """Connected, and the queues and Q_out made."""
    until(lambda: all(one.bus.connected for one in both), *both, want_first=want_first)
    for_a_while(0.03, *both, want_first=want_first)


def answer(hub: Hub, target: Target, jobs: list[Job]) -> None:
    for job in jobs:
        hub.bus.reply(target.bus.reply_key, proposal(seq=job.message.seq))  # type: ignore[union-attr]
        hub.bus.done(job)
    hub.gone += hub.bus.flush()


def proposals(target: Target) -> list[str]:
    return [event.seq for event in target.events if isinstance(event, Proposal)]


def idle(arms: Arms) -> bool:
    return not any(arms.length(key) for key in (Q_IN, STICKY, REPLY_KEY))


def test_a_first_job_goes_round(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_first(OFFER, propose())
    until(lambda: hub.jobs, target, hub)
    (job,) = hub.jobs
    assert (job.message, job.first, job.queue) == (propose(), True, Q_IN)
    assert 0 <= job.age_s < 5
    answer(hub, target, hub.jobs)
    until(lambda: target.events, target, hub)
    assert target.events == [proposal()]
    until(lambda: idle(arms), target, hub)
    assert hub.gone == []


def test_every_kind_travels_on_the_sticky_queue_in_order(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    sent: list[ToHub] = [hello(), propose(), close(), close(None)]
    for message in sent:
        target.bus.send_hub("h1", message)
    until(lambda: len(hub.jobs) == 4, target, hub)
    assert [job.message for job in hub.jobs] == sent
    assert not any(job.first for job in hub.jobs)
    hub.bus.reply(REPLY_KEY, welcome())
    until(lambda: target.events, target, hub)
    assert target.events == [welcome()]


def test_nothing_is_sent_before_flush(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_hub("h1", hello())
    for_a_while(0.05, hub)
    assert hub.jobs == []
    target.bus.flush()
    until(lambda: hub.jobs, hub)


def test_a_burst_arrives_whole_and_once(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    names = [f"s{i}" for i in range(200)]
    for name in names:
        target.bus.send_hub("h1", propose(seq=name))
    until(lambda: len(hub.jobs) == 200, target, hub)
    answer(hub, target, hub.jobs)
    until(lambda: len(target.events) == 200, target, hub)
    assert proposals(target) == names
    until(lambda: idle(arms), target, hub)


def test_waiting_by_descriptor(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_hub("h1", propose())
    target.bus.flush()
    jobs = hub.bus.receive(5.0, want_first=False)
    answer(hub, target, [job for job in jobs if isinstance(job, Job)])
    deadline = time.monotonic() + 5
    while not target.events and time.monotonic() < deadline:
        assert select.select(target.bus.filenos(), [], [], 5.0)[0], "never became readable"
        target.poll()
    assert proposals(target) == ["s1"]


def test_a_hub_without_room_leaves_first_jobs_alone(arms: Arms, ends: Ends) -> None:
    target, hub = ends.target(), ends.hub()
    join(target, hub, want_first=0)
    target.bus.send_first(OFFER, propose(seq="first"))
    target.bus.send_hub("h1", propose(seq="later"))
    until(lambda: hub.jobs, target, hub, want_first=0)
    for_a_while(0.3, target, hub, want_first=0)
    assert [job.first for job in hub.jobs] == [False]
    assert arms.length(Q_IN) == 1
    until(lambda: len(hub.jobs) == 2, target, hub, want_first=1)
    assert hub.jobs[1].first


def test_room_that_opens_is_used_at_once(arms: Arms, ends: Ends) -> None:
    """The read posted without Q_in would last a second; the hub does not sit it out."""
    target, hub = ends.target(), ends.hub()
    join(target, hub, want_first=0)
    spans: list[float] = []
    for number in range(5):
        for_a_while(0.03, target, hub, want_first=0)
        target.bus.send_first(OFFER, propose(seq=f"s{number}"))
        target.bus.flush()
        started = time.monotonic()
        until(lambda: len(hub.jobs) > len(spans), hub, want_first=1)
        spans.append(time.monotonic() - started)
    assert sorted(spans)[2] < 0.4


def test_no_more_first_jobs_than_fit(arms: Arms, ends: Ends) -> None:
    target, hub, other = ends.target(), ends.hub("h1"), ends.hub("h2")
    join(target, hub, other, want_first=0)
    for number in range(8):
        target.bus.send_first(OFFER, propose(seq=f"s{number}"))
    target.bus.flush()
    until(lambda: hub.jobs, hub, want_first=3)
    for_a_while(0.05, hub, want_first=0)
    assert len(hub.jobs) <= 3
    until(lambda: len(hub.jobs) + len(other.jobs) == 8, other)


def test_hubs_share_first_jobs(arms: Arms, ends: Ends) -> None:
    target, hubs = ends.target(), [ends.hub(f"h{i}") for i in range(3)]
    join(target, *hubs)
    for number in range(60):
        target.bus.send_first(OFFER, propose(seq=f"s{number}"))
    target.bus.flush()
    until(lambda: sum(len(hub.jobs) for hub in hubs) == 60, *hubs, want_first=1)
    seqs = [str(job.message.seq) for hub in hubs for job in hub.jobs]  # type: ignore[union-attr]
    assert sorted(seqs) == sorted(f"s{number}" for number in range(60))
    assert sum(bool(hub.jobs) for hub in hubs) >= 2


def test_a_queue_that_is_not_there_is_gone(arms: Arms, ends: Ends) -> None:
    target = ends.target()
    until(lambda: target.bus.connected, target)
    target.events.clear()
    target.bus.send_hub("nobody", hello())
    target.bus.send_hub("nobody", hello())
    target.bus.send_first(OFFER, propose())
    until(lambda: len(target.events) >= 2, target)
    assert target.events == [QueueGone(KEYS.hub_queue("nobody")), QueueGone(Q_IN)]


def test_a_closed_hub_is_gone(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    hub.bus.close()
    target.bus.send_hub("h1", hello())
    until(lambda: target.events, target)
    assert target.events == [QueueGone(STICKY)]


def test_a_lost_reply_stream_is_reported_and_made_again(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    arms.delete(REPLY_KEY)
    hub.bus.reply(REPLY_KEY, proposal())
    until(lambda: hub.gone, hub)
    assert hub.gone == [REPLY_KEY]
    target.bus.send_hub("h1", propose())  # silence after a question makes it look
    until(lambda: REPLY_KEY in arms.stream_keys(), target)
    until(lambda: hub.jobs, hub)
    answer(hub, target, hub.jobs)
    until(lambda: proposals(target), target, hub)


def test_g9_jobs_of_a_crashed_hub_go_to_another(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_first(OFFER, propose())
    until(lambda: hub.jobs, target, hub)
    arms.cut()
    heir = ends.hub("h2")
    until(lambda: heir.jobs, heir, target)
    assert heir.jobs[0].message == propose()
    join(heir, target)
    answer(heir, target, heir.jobs)
    until(lambda: proposals(target) and idle(arms), heir, target)


def test_jobs_of_a_crashed_hub_go_to_its_next_incarnation(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_hub("h1", propose())
    until(lambda: hub.jobs, target, hub)
    arms.cut()
    again = ends.hub("h1", "hb2")
    until(lambda: again.jobs, again, target)
    assert (again.jobs[0].message, again.jobs[0].first) == (propose(), False)


def test_a_job_that_its_hub_holds_is_nobody_elses(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    other = ends.hub("h2")
    join(other)
    target.bus.send_first(OFFER, propose())
    until(lambda: hub.jobs, target, hub)
    for_a_while(3 * MIN_IDLE_S, hub, other)
    assert (len(hub.jobs), len(other.jobs)) == (1, 0)
    answer(hub, target, hub.jobs)
    until(lambda: idle(arms), hub, target)


def test_a_job_that_kills_hubs_is_a_dead_letter(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_first(OFFER, propose())
    until(lambda: hub.jobs, target, hub)
    arms.cut()
    second = ends.hub("h2")
    until(lambda: second.jobs, second)
    arms.cut()
    third = ends.hub("h3")
    until(lambda: third.bad, third, target)
    assert third.jobs == []
    assert "delivered 3 times" in third.bad[0].reason
    join(third, target)
    until(lambda: arms.dead() == 1 and arms.length(Q_IN) == 0, third, target)


def test_a_broken_connection_comes_back(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    arms.cut()
    until(lambda: Reconnected() in target.events, target, hub)
    join(target, hub)
    target.bus.send_hub("h1", propose())
    until(lambda: hub.jobs, target, hub)
    answer(hub, target, hub.jobs)
    until(lambda: proposals(target), target, hub)


def test_an_unanswered_job_is_not_delivered_twice_to_its_holder(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_hub("h1", propose())
    until(lambda: hub.jobs, target, hub)
    for _ in range(4):
        arms.cut()
        for_a_while(0.2, target, hub)
    join(target, hub)
    assert (len(hub.jobs), hub.bad) == (1, [])
    answer(hub, target, hub.jobs)
    until(lambda: proposals(target) and idle(arms), target, hub)


def test_the_server_stops_and_returns_empty(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_hub("h1", propose(seq="before"))
    until(lambda: hub.jobs, target, hub)
    arms.stop()
    until(lambda: not (target.bus.connected or hub.bus.connected), target, hub)
    target.bus.send_hub("h1", propose(seq="during"))
    answer(hub, target, hub.jobs)
    for_a_while(0.1, target, hub)
    arms.start()
    join(target, hub)
    assert Reconnected() in target.events
    target.events.clear()
    target.bus.send_first(OFFER, propose(seq="after"))
    target.bus.send_hub("h1", propose(seq="after too"))
    hub.jobs.clear()
    until(lambda: len(hub.jobs) == 2, target, hub)
    answer(hub, target, hub.jobs)
    until(lambda: len(target.events) == 2, target, hub)
    assert sorted(proposals(target)) == ["after", "after too"]


def test_no_server_at_first(arms: Arms, ends: Ends) -> None:
    arms.stop()
    target, hub = ends.target(), ends.hub()
    for_a_while(0.1, target, hub)
    assert (target.bus.connected, hub.bus.connected, target.events) == (False, False, [])
    arms.start()
    join(target, hub)
    assert target.events == [Reconnected()]


def test_everything_flushed_is_made_again(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    arms.flush_all()
    until(lambda: {Q_IN, STICKY} <= arms.stream_keys(), target, hub)
    target.bus.send_hub("h1", propose())
    until(lambda: hub.jobs and REPLY_KEY in arms.stream_keys(), target, hub)
    answer(hub, target, hub.jobs)
    until(lambda: proposals(target), target, hub)


def test_garbage_for_the_hub(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    arms.inject(Q_IN, b"\xff\x00garbage")
    arms.inject(STICKY, b"")
    target.bus.send_hub("h1", hello())
    until(lambda: len(hub.bad) == 2 and hub.jobs, target, hub)
    until(lambda: arms.dead() == 2 and arms.length(Q_IN) == 0, target, hub)
    assert target.events == []


def test_a_bad_propose_is_answered(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    fields = msgspec.msgpack.decode(encode(propose(attempt=3)))
    fields[11] = 1000  # depth
    arms.inject(STICKY, msgspec.msgpack.encode(fields))
    until(lambda: target.events, target, hub)
    (event,) = target.events
    assert isinstance(event, Proposal)
    assert (event.status, event.seq, event.attempt, event.hub) == (Status.BAD, "s1", 3, "h1")
    assert len(hub.bad) == 1
    until(lambda: idle(arms), target, hub)


def test_an_oversized_job_is_answered(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    fields = msgspec.msgpack.decode(encode(propose()))
    fields[15] = b"f" * MAX_ENTRY_BYTES  # features
    arms.inject(Q_IN, msgspec.msgpack.encode(fields))
    until(lambda: target.events, target, hub)
    assert [event.status for event in target.events if isinstance(event, Proposal)] == [Status.BAD]
    assert "limit" in hub.bad[0].reason
    until(lambda: idle(arms), target, hub)


def test_a_reply_key_of_nobodys_is_refused(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    stray = "{starsd}:pods"
    target.bus.send_hub("h1", propose(reply_key=stray))
    target.bus.send_hub("h1", hello(reply_key=stray))
    until(lambda: len(hub.bad) == 2, target, hub)
    assert "reply_key" in hub.bad[0].reason
    until(lambda: arms.length(STICKY) == 0, target, hub)
    assert hub.jobs == []
    assert stray not in arms.stream_keys()
    with pytest.raises(ProtocolError, match="reply_key"):
        hub.bus.reply(stray, proposal())


def test_garbage_for_the_target(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    arms.inject(REPLY_KEY, b"\xc1")
    arms.inject(REPLY_KEY, encode(hello()))
    arms.inject(REPLY_KEY, b"x" * (MAX_ENTRY_BYTES + 1))
    arms.inject(REPLY_KEY, encode(proposal()))
    until(lambda: len(target.events) == 4, target, hub)
    assert [type(event) for event in target.events] == [Garbage, Garbage, Garbage, Proposal]
    until(lambda: idle(arms), target, hub)


def test_sessions_are_apart(arms: Arms, ends: Ends) -> None:
    one, two, hub = ends.target("t1"), ends.target("t2", "b9"), ends.hub()
    join(one, two, hub)
    hub.bus.reply(two.bus.reply_key, proposal(seq="for two"))
    until(lambda: proposals(two), one, two, hub)
    assert (proposals(one), proposals(two)) == ([], ["for two"])


def test_nothing_stays_behind(arms: Arms, ends: Ends) -> None:
    target, hub = pair(ends)
    target.bus.send_first(OFFER, propose())
    until(lambda: hub.jobs, target, hub)
    answer(hub, target, hub.jobs)
    until(lambda: proposals(target), target, hub)
    target.bus.close()
    hub.bus.close()
    until(lambda: arms.stream_keys() <= {Q_IN})
    assert arms.length(Q_IN) == 0
