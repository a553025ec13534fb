"""What hubs tell of what they foresee: when it is verified, and what never is."""

from __future__ import annotations

from typing import Any

import pytest

from services.target.guess import NOTHING, Guess, Source
from services.target.sequence import Sequence
from services.target.star import Star
from starsd.protocol.messages import MAX_NODES, Foresight, Propose
from starsd.protocol.tokens import pack_tokens
from tests.unit.target.recording import (
    FACTS,
    SESSION,
    Clock,
    RecordingBus,
    make_reply,
    make_sequence,
    make_star,
    welcome,
)

TRIP_S = 0.008


class Talk:
    """A target, a welcomed hub and one sequence that has said 5 and asks for the first time."""

    def __init__(self, **settings: Any) -> None:
        self.bus, self.clock = RecordingBus(), Clock()
        given = {"wait_budget": 100.0, "run_ahead": "on", **settings}
        self.star: Star = make_star(self.bus, self.clock, **given)
        welcome(self.star, self.bus)
        self.sequence: Sequence = make_sequence()
        self.sequence.limit = 10_000
        self.star.admit(self.sequence)
        first = self.bus.jobs()[-1]
        self.bus.arrived.append(make_reply(first, [], have=self.sequence.tokens))
        self.star.receive()
        self.say(5)
        self.star.request([self.sequence])

    @property
    def job(self) -> Propose:
        return self.bus.jobs()[-1]

    def say(self, *tokens: int) -> None:
        proposal, self.sequence.proposal = self.sequence.proposal, NOTHING
        self.sequence.accept([*tokens], proposal)

    def tell(self, tokens: list[int], parents: list[int], **changes: Any) -> None:
        """What may be said after the prefix of the newest job."""
        fields: dict[str, Any] = {
            "session": SESSION,
            "seq": "s",
            "epoch": self.job.epoch,
            "round": self.job.round,
            "hub": "hub",
            "hub_boot": "h1",
            "tokens": pack_tokens(tokens),
            "parents": parents,
            **changes,
        }
        self.bus.arrived.append(Foresight(**fields))
        self.star.receive()

    def answer(self, tokens: list[int]) -> None:
        """The hub's reply to the newest job, a trip later."""
        self.clock.now += TRIP_S
        reply = make_reply(self.job, tokens, have=self.sequence.tokens, service_us=6000)
        self.bus.arrived.append(reply)
        self.star.receive()

    def next(self, *said: int) -> Guess:
        """A step says so; what is to be verified then without waiting."""
        self.say(*said)
        self.star.request([self.sequence])
        return self.sequence.proposal

    def count(self, result: str) -> float:
        return self.star._stats.value("starsd:foreseen_rounds_total", result=result)

    def replies(self, status: str) -> float:
        return self.star._stats.value("starsd:hub_replies_total", status=status)


TREE = [6, 7, 8, 9, 10], [-1, 0, 1, 0, -1]
"""6 and then 7 8 or 9; or 10."""


def test_what_lies_below_what_was_said_is_verified_next() -> None:
    talk = Talk()
    talk.tell(*TREE)
    found = talk.next(6)
    assert (found.tokens, found.parents) == ([7, 8, 9], [-1, 0, -1])
    assert found.source is Source.FORESEEN
    assert talk.count("taken") == 1


def test_its_hub_gets_what_was_said_at_once_and_nobody_waits() -> None:
    talk = Talk()
    talk.tell(*TREE)
    talk.next(6, 7)
    assert (talk.job.depth, talk.job.max_nodes) == (0, 1)
    assert talk.job.base + len(talk.job.tokens) // 4 == len(talk.sequence.tokens)
    assert talk.star.due_until(talk.sequence) is None


def test_a_step_later_the_same_tree_may_still_tell() -> None:
    """The next one was late."""
    talk = Talk()
    talk.tell(*TREE)
    talk.next(6)
    assert talk.next(7).tokens == [8]
    assert talk.count("taken") == 2


@pytest.mark.parametrize("said", [[10], [11], [6, 11], [6, 7, 8]])
def test_what_was_not_foreseen_is_asked_for(said: list[int]) -> None:
    talk = Talk()
    talk.tell(*TREE)
    assert not talk.next(*said)
    assert talk.job.depth > 0
    assert talk.count("missed") == 1


def test_the_newest_counts() -> None:
    talk = Talk()
    talk.tell(*TREE)
    talk.tell([6, 20], [-1, 0])
    assert talk.next(6).tokens == [20]


def test_one_of_an_older_round_changes_nothing() -> None:
    talk = Talk()
    older = talk.job.round
    talk.next(6)
    talk.tell([7, 8], [-1, 0])
    talk.tell([7, 20], [-1, 0], round=older)
    assert talk.next(7).tokens == [8]


@pytest.mark.parametrize(
    "changes",
    [
        {"session": "other"},
        {"seq": "other"},
        {"epoch": 7},
        {"round": 99},
        {"hub": "stranger"},
        {"hub_boot": "older"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_not_about_us_is_counted_and_changes_nothing(changes: dict[str, Any]) -> None:
    talk = Talk()
    talk.tell(*TREE, **changes)
    assert not talk.next(6)
    assert talk.replies("stale") == 1


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [
        ([6, 7], [-1]),
        ([6, 7], [-1, 1]),
        ([6, 7], [-2, 0]),
        ([6, 7, 7], [-1, 0, 0]),
        ([6, FACTS.vocab_size], [-1, 0]),
    ],
    ids=["unequal", "own parent", "no parent", "equal siblings", "no token of ours"],
)
def test_what_is_no_tree_is_counted_and_changes_nothing(
    tokens: list[int], parents: list[int]
) -> None:
    talk = Talk()
    talk.tell(tokens, parents)
    assert not talk.next(6)
    assert talk.replies("malformed") == 1
    talk.tell([8, 9], [-1, 0])
    assert talk.next(8).tokens == [9]


def test_a_sequence_that_leaves_its_hub_forgets_what_that_told() -> None:
    talk = Talk()
    talk.tell(*TREE)
    talk.star.update_hubs([])
    assert not talk.next(6)


def test_no_more_of_it_than_would_be_asked_for() -> None:
    wide = [6, *range(20, 50)], [-1, *[0] * 30]
    deep = [6, *range(20, 50)], [-1, *range(30)]
    for told, nodes in ((wide, MAX_NODES), (deep, 4)):
        talk = Talk(draft_depth=4)
        talk.tell(*told)
        assert len(talk.next(6)) == nodes


def test_a_chain_where_trees_cannot_be_verified() -> None:
    talk = Talk(draft_nodes=0)
    talk.tell(*TREE)
    found = talk.next(6)
    assert (found.tokens, found.parents) == ([7, 8], None)


def test_the_last_token_of_an_answer_is_the_targets_own() -> None:
    talk = Talk()
    talk.sequence.limit = len(talk.sequence.tokens) + 3
    talk.tell(*TREE)
    assert talk.next(6).tokens == [7, 9]


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        ({"run_ahead": "auto"}, True),
        ({"run_ahead": "auto", "depth_control": "fixed"}, False),
        ({"run_ahead": "on", "depth_control": "fixed"}, True),
        ({"run_ahead": "off"}, False),
    ],
)
def test_run_ahead(settings: dict[str, Any], reads: bool) -> None:
    """What a hub is told at the first word."""
    talk = Talk(**settings)
    (hello,) = [message for _, message in talk.bus.sent if hasattr(message, "foresight")]
    assert hello.foresight is reads


# -- whether it pays -----------------------------------------------------------------------------


RIGHT = [21, 22, 23, 24]


def rounds(talk: Talk, right: int, count: int = 80) -> list[bool]:
    """Whether what was foreseen was verified, round by round: ``right`` tokens of it come true. A
    hub that is asked knows two of four."""
    taken = []
    for _ in range(count):
        foreseen = talk.sequence.proposal.source is Source.FORESEEN
        if not talk.sequence.proposal:
            talk.answer(RIGHT)
        accepted = right if foreseen else 2
        said = [*RIGHT[:accepted], 30]
        guess = [*said, *RIGHT[:right], *[40] * (4 - right)]
        talk.tell(guess, [*range(-1, len(guess) - 1)])
        talk.star.verified(talk.sequence, talk.sequence.proposal, [*range(accepted)])
        talk.next(*said)
        taken.append(talk.sequence.proposal.source is Source.FORESEEN)
    return taken


def test_it_is_verified_where_that_gives_more_tokens_a_second() -> None:
    """Asking takes 18 ms and gives three tokens, not asking 10 ms."""
    talk = Talk(run_ahead="auto")
    assert sum(rounds(talk, 1)[-32:]) == 30  # and two to compare
    assert not any(rounds(talk, 0)[-32:])
    assert sum(rounds(talk, 2)[-32:]) == 30


def test_it_is_always_verified_if_told_to() -> None:
    talk = Talk(run_ahead="on")
    assert all(rounds(talk, 0))


def test_all_wait_or_none() -> None:
    """One of two has nothing foreseen: it asks, and the step does not wait for it."""
    talk = Talk()
    other = make_sequence(seq="other")
    talk.star.admit(other)
    talk.bus.arrived.append(make_reply(talk.job, [], have=other.tokens))
    talk.star.receive()
    other.accept([5], NOTHING)
    talk.star.request([talk.sequence])
    talk.tell(*TREE, round=talk.sequence.star.round)
    talk.say(6)
    talk.star.request([talk.sequence, other])
    assert talk.sequence.proposal
    assert (talk.job.seq, talk.job.depth) == ("other", 4)
    assert talk.star.due_until(other) is None
