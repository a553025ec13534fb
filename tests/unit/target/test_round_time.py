"""Where the time of a round goes, as the target counts it."""

from __future__ import annotations

from typing import Any

import pytest

from services.target.guess import NOTHING, Guess
from services.target.sequence import Sequence
from services.target.stats import StarStats
from starsd.protocol.messages import Proposal, Status
from tests.unit.target.recording import (
    Clock,
    RecordingBus,
    make_reply,
    make_sequence,
    make_star,
    welcome,
)

PARTS = ("queue", "draft", "network", "verify")


class Talk:
    """A target and a welcomed hub; every sequence is past prefill."""

    def __init__(self) -> None:
        self.bus, self.clock = RecordingBus(), Clock()
        self.star = make_star(self.bus, self.clock)
        welcome(self.star, self.bus)
        self.sequences: list[Sequence] = []

    def join(self) -> Sequence:
        sequence = make_sequence(seq=f"s{len(self.sequences)}")
        self.sequences.append(sequence)
        self.star.admit(sequence)
        first = self.bus.jobs()[-1]
        self.clock.now += 0.5  # of a job that asks for no tokens: no round's time
        self.hear(make_reply(first, [], have=sequence.tokens, service_us=400_000))
        sequence.accept([5], Guess([]))
        return sequence

    def ask(self) -> None:
        self.star.request(self.sequences)

    def hear(self, *replies: Proposal) -> None:
        self.bus.arrived += replies
        self.star.receive()

    def reply(self, **fields: Any) -> Proposal:
        """To the newest job."""
        return make_reply(self.bus.jobs()[-1], [7, 8], **fields)

    def step(self, seconds: float) -> None:
        self.star.step_over(self.sequences)
        self.clock.now += seconds
        for sequence in self.sequences:
            proposal, sequence.proposal = sequence.proposal, NOTHING
            sequence.accept([6], proposal)

    def seconds(self) -> dict[str, float]:
        stats: StarStats = self.star._stats
        return {part: stats.value("starsd:round_seconds_total", part=part) for part in PARTS}


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    talk.join()
    return talk


def test_a_round_trip_is_split_by_what_the_hub_says(talk: Talk) -> None:
    talk.ask()
    talk.clock.now += 0.020
    talk.hear(talk.reply(queue_us=3_000, service_us=12_000))
    assert talk.seconds() == pytest.approx(
        {"queue": 0.003, "draft": 0.012, "network": 0.005, "verify": 0.0}
    )


@pytest.mark.parametrize(
    ("queue_us", "service_us", "queue", "draft"),
    [
        (3_000, 19_000, 0.001, 0.019),
        (50_000, 0, 0.020, 0.0),
        (1_000, 2**40, 0.0, 0.020),
    ],
)
def test_a_hub_cannot_tell_of_more_time_than_passed(
    talk: Talk, queue_us: int, service_us: int, queue: float, draft: float
) -> None:
    talk.ask()
    talk.clock.now += 0.020
    talk.hear(talk.reply(queue_us=queue_us, service_us=service_us))
    assert talk.seconds() == pytest.approx(
        {"queue": queue, "draft": draft, "network": 0.0, "verify": 0.0}, abs=1e-9
    )


def test_a_duplicate_counts_once(talk: Talk) -> None:
    talk.ask()
    talk.clock.now += 0.020
    talk.hear(talk.reply(), talk.reply())
    talk.clock.now += 0.020
    talk.hear(talk.reply())
    assert sum(talk.seconds().values()) == pytest.approx(0.020)


def test_a_late_reply_counts_nothing(talk: Talk) -> None:
    """Its trip went on beside a plain step and the next round's; time would count twice."""
    talk.ask()
    late = talk.reply()
    talk.step(0.010)
    talk.ask()
    talk.hear(late)
    assert sum(talk.seconds().values()) == 0


@pytest.mark.parametrize("status", [Status.EXPIRED, Status.BAD, Status.NEED_PREFIX])
def test_a_reply_without_proposal_counts_nothing(talk: Talk, status: Status) -> None:
    talk.ask()
    talk.clock.now += 0.020
    talk.hear(talk.reply(status=status))
    assert sum(talk.seconds().values()) == 0


def test_a_verifying_step_counts_until_the_next_round_is_asked(talk: Talk) -> None:
    talk.ask()
    talk.hear(talk.reply())
    talk.clock.now += 1.0  # between reply and step: nobody's
    talk.step(0.010)
    talk.clock.now += 0.002
    talk.ask()
    assert talk.seconds()["verify"] == pytest.approx(0.012)
    talk.step(0.010)  # plain: no reply came
    talk.ask()
    assert talk.seconds()["verify"] == pytest.approx(0.012)


def test_a_step_counts_once_for_each_round_it_verifies(talk: Talk) -> None:
    talk.join()
    talk.ask()
    talk.hear(*(make_reply(job, [7, 8]) for job in talk.bus.jobs()[-2:]))
    talk.step(0.010)
    talk.ask()
    assert talk.seconds()["verify"] == pytest.approx(0.020)
