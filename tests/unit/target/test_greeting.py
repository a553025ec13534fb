"""Which hubs a target greets, and which it then uses."""

from __future__ import annotations

import pytest

from services.target.greeting import MAX_HUBS, SESSION_REFUSED_S
from services.target.star import Star
from starsd.protocol.messages import Limits, Refused, Welcome
from tests.unit.target.recording import (
    SESSION,
    Clock,
    RecordingBus,
    make_pod,
    make_sequence,
    make_star,
    welcome,
)


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
