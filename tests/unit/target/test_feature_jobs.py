"""Jobs that carry hidden states, and the hubs that get them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from services.target.features import Features
from services.target.guess import Guess
from services.target.jobs import MAX_ATTEMPTS
from services.target.sequence import Sequence
from services.target.star import Star
from services.target.stats import StarStats
from starsd.engine.interface import Features as Rows
from starsd.engine.interface import Row
from starsd.protocol.codec import encode
from starsd.protocol.features import unpack_features
from starsd.protocol.messages import Limits, Propose, Status, Welcome
from starsd.protocol.pods import DrafterKind, HubPod, Needs
from starsd.settings.target import TargetSettings
from tests.scripted_head import TappedRunner, make_target
from tests.unit.target.recording import (
    FACTS,
    FLAT,
    SESSION,
    Clock,
    RecordingBus,
    make_pod,
    make_reply,
    make_sequence,
)

WIDTH = 3 * 576
NEEDS = Needs(hidden_size=576, layers=(1, 2, 3), revision="rev")
PER_ENTRY = 240_000 // (2 * WIDTH + 4)
"""Positions of three taps of SmolLM2 that an entry holds: 69."""


def head_pod(pod_id: str = "hub", **needs: Any) -> HubPod:
    pod = make_pod(pod_id)
    needs = msgspec.structs.asdict(NEEDS) | needs
    offer = msgspec.structs.replace(pod.offer, kind=DrafterKind.EAGLE, needs=Needs(**needs))
    return msgspec.structs.replace(pod, offer=offer)


def positions(job: Propose) -> list[int]:
    """Row ``i`` says ``i``: which positions a job brings."""
    assert len(encode(job)) <= 256 * 1024
    found: list[int] = unpack_features(job.features or b"", WIDTH)[:, 0].tolist()
    length = job.base + len(job.tokens) // 4
    assert found == [*range(length - 1 - len(found), length - 1)]
    return found


def rows(first: int, last: int) -> Rows:
    return np.repeat(np.arange(first, last, dtype=np.uint16)[:, None], WIDTH, axis=1)


class Talk:
    """A target that keeps states and a star of hubs."""

    def __init__(self, pods: list[HubPod] | None = None, context: int = 256) -> None:
        self.bus, self.clock, self.runner = RecordingBus(), Clock(), make_target()
        self.features = Features(self.runner, context)
        settings = TargetSettings(id="t1", boot="b1", draft_context=context)
        self.stats = StarStats()
        self.star = Star(self.bus, FACTS, settings, self.clock, self.stats, self.features, FLAT)
        self.meet(*(pods or [head_pod()]))

    def meet(self, *pods: HubPod) -> None:
        self.star.update_hubs(pods)
        for pod in pods:
            limits = Limits(max_depth=8)
            self.bus.arrived.append(
                Welcome(session=SESSION, hub=pod.id, hub_boot=pod.boot, limits=limits)
            )
        self.star.receive()

    def admit(self, length: int) -> Sequence:
        sequence = make_sequence([7] * length, max_tokens=400)
        sequence.slot = 0
        self.star.admit(sequence)
        return sequence

    def decode(self, sequence: Sequence, count: int = 1) -> None:
        """One step: what is not cached goes through the model, and so many tokens come out."""
        start = sequence.cached
        sequence.accept([8] * count, Guess([8] * (count - 1)))
        self.features.keep(0, start, rows(start, sequence.cached))

    def ask(self, sequence: Sequence) -> list[Propose]:
        before = len(self.bus.jobs())
        self.star.request([sequence])
        return self.bus.jobs()[before:]

    def answer(self, job: Propose, sequence: Sequence) -> None:
        held = sequence.tokens[: job.base + len(job.tokens) // 4]
        self.bus.arrived.append(make_reply(job, [], have=held))
        self.star.receive()

    def deny(self, job: Propose) -> None:
        """The hub holds nothing."""
        self.bus.arrived.append(make_reply(job, [], status=Status.NEED_PREFIX))
        self.star.receive()


@pytest.fixture
def talk() -> Talk:
    return Talk()


# -- what travels when ---------------------------------------------------------------------------


def test_the_first_job_goes_when_the_prompt_is_through(talk: Talk) -> None:
    sequence = talk.admit(20)
    assert talk.bus.jobs() == []
    assert sequence.star.miss == "features"
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    assert (job.base, len(job.tokens) // 4, job.depth) == (0, 21, 6)
    assert positions(job) == [*range(20)]


def test_only_new_positions_travel(talk: Talk) -> None:
    sequence = talk.admit(20)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    talk.answer(job, sequence)
    talk.decode(sequence, 3)
    (job,) = talk.ask(sequence)
    assert job.base == 21
    assert positions(job) == [20, 21, 22]
    talk.answer(job, sequence)
    (job,) = talk.ask(sequence)
    assert (job.base, positions(job)) == (24, [])


def test_a_long_prefix_goes_in_entries_that_hold_it(talk: Talk) -> None:
    """The first alone, to Q_in; the others at once when somebody has taken it."""
    sequence = talk.admit(299)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    begin = 299 - 256
    first = positions(job)
    assert (job.depth, first[0]) == (0, begin)
    assert PER_ENTRY - 2 < len(first) <= PER_ENTRY
    assert talk.ask(sequence) == []
    talk.answer(job, sequence)
    jobs = talk.ask(sequence)
    assert [job.depth for job in jobs] == [0, 0, 6]
    assert [*first, *(row for job in jobs for row in positions(job))] == [*range(begin, 299)]
    assert [job.round for job in jobs] == [1, 2, 3]


def test_a_hub_that_fell_behind_gets_the_last_positions_only() -> None:
    talk = Talk(context=16)
    sequence = talk.admit(20)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    assert positions(job) == [*range(4, 20)]
    talk.answer(job, sequence)
    for _ in range(30):
        talk.decode(sequence)
    (job,) = talk.ask(sequence)
    assert job.base == 21
    assert positions(job) == [*range(34, 50)]


def test_need_prefix_brings_all_that_the_head_should_look_at(talk: Talk) -> None:
    sequence = talk.admit(20)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    talk.answer(job, sequence)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    assert positions(job) == [20]
    talk.deny(job)
    again = talk.bus.jobs()[-1]
    assert (again.base, again.round, again.attempt) == (0, job.round, 1)
    assert positions(again) == [*range(21)]


def test_a_hub_that_always_needs_more_is_left_alone_after_some_attempts(talk: Talk) -> None:
    sequence = talk.admit(299)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    talk.answer(job, sequence)
    jobs = talk.ask(sequence)
    for _ in range(3 * MAX_ATTEMPTS):
        talk.deny(talk.bus.jobs()[-1])
    assert len(talk.bus.jobs()) == 1 + len(jobs) + 4 * MAX_ATTEMPTS
    assert sequence.star.miss == "unanswered"


def test_who_lost_the_slot_sends_nothing_before_it_has_states_again(talk: Talk) -> None:
    sequence = talk.admit(20)
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    talk.answer(job, sequence)
    (job,) = talk.ask(sequence)
    sequence.preempt()
    talk.features.cut(0, 0)
    talk.deny(job)
    assert talk.bus.jobs()[-1] is job
    talk.decode(sequence)
    (job,) = talk.ask(sequence)
    assert positions(job) == [*range(21)]


def test_a_language_model_gets_no_states() -> None:
    talk = Talk([make_pod()])
    sequence = talk.admit(20)
    assert [(job.depth, job.features) for job in talk.bus.jobs()] == [(0, None)]
    assert not talk.features.ready(sequence)


# -- which hubs ----------------------------------------------------------------------------------


def incompatible(talk: Talk, reason: str) -> float:
    return talk.stats.value("starsd:hubs_incompatible_total", reason=reason)


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"revision": "other"}, "revision"),
        ({"layers": (9,)}, "layers"),
        ({"hidden_size": 10**6}, "width"),
    ],
)
def test_a_head_for_another_model_is_refused(needs: dict[str, Any], reason: str) -> None:
    talk = Talk([head_pod(**needs)])
    assert talk.bus.hellos() == []
    assert talk.star.usable_hubs == 0
    assert incompatible(talk, reason) == 1
    talk.meet(head_pod(**needs))
    assert incompatible(talk, reason) == 1


def test_hubs_of_one_kind_are_served_together() -> None:
    talk = Talk([head_pod("a"), head_pod("b")])
    assert talk.star.usable_hubs == 2


def test_another_kind_is_served_when_the_first_is_gone() -> None:
    first, second = head_pod("a"), head_pod("b", layers=(2, 4))
    talk = Talk([first, second])
    assert talk.star.usable_hubs == 1
    assert incompatible(talk, "layers") == 1
    talk.meet(second)
    talk.meet(second)
    assert talk.star.usable_hubs == 1
    assert isinstance(talk.runner, TappedRunner)
    assert talk.runner.taps == (2, 4)
    assert "b" in talk.bus.hellos()


def test_a_hub_whose_needs_turn_out_unfit_is_left() -> None:
    """The size of states shows when there are some."""
    talk = Talk()
    assert talk.star.usable_hubs == 1
    talk.runner.forward([Row(0, [1], 0)])
    assert talk.features.of_forward(1) == [None]
    talk.meet(head_pod())
    assert talk.star.usable_hubs == 0
    assert incompatible(talk, "hidden_size") == 1
