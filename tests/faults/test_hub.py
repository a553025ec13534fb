"""Whatever happens to the hub, answers are those of plain decoding, and it rejoins."""

from __future__ import annotations

import signal
from functools import partial

import pytest

from starsd.check.lab import Service
from tests.livestar import (
    LiveStar,
    eventually,
    forgot_hub,
    health,
    loop_of,
    questions,
    rounds,
    signal_pod,
    texts,
    value,
)


def rejoins(star: LiveStar) -> None:
    """Both targets use the hub, and proposals are verified again."""
    star.wait_whole()
    before = rounds(star)
    asked = questions(4, first=900, max_tokens=30)
    assert texts(star.through(asked)) == texts(star.plain(asked))
    eventually(lambda: rounds(star) > before, "proposals are verified again")


@pytest.mark.parametrize("part", ["pod", "loop"])
def test_hub_killed_midstream(star: LiveStar, part: str) -> None:
    asked = questions(4)
    kill = star["hub"].kill if part == "pod" else loop_of(star["hub"]).kill
    heard = star.through(asked, kill)
    assert texts(heard) == texts(star.plain(asked))
    assert sum(one.starsd["accepted"] for one in heard) > 0
    assert all(one.starsd["fallbacks"] > 20 for one in heard), "the rest went without the hub"
    assert {one.starsd["target"] for one in heard} == {"a", "b"}
    if part == "loop":
        assert star["hub"].process is not None
        star["hub"].process.wait(20.0)  # its front has yet to notice
    star.repair("hub")
    rejoins(star)


def test_a_hub_whose_loop_died_ends_and_leaves_the_registry(star: LiveStar) -> None:
    hub = star["hub"]
    loop_of(hub).kill()
    assert hub.process is not None
    assert hub.process.wait(20.0) == 1
    for target in star.targets:
        eventually(partial(forgot_hub, target), "the hub is forgotten")
        assert health(target)["code"] == health(target, "live")["code"] == 200


def test_targets_that_start_without_a_hub_serve_and_take_one_later(star: LiveStar) -> None:
    star["hub"].kill()
    for target in star.targets:
        eventually(partial(forgot_hub, target), "the hub is forgotten")
        target.kill()
        target.start()
    for service in (*star.targets, star["gateway"]):
        service.wait_ready()
    asked = questions(4, first=50)
    heard = star.through(asked)
    assert texts(heard) == texts(star.plain(asked))
    assert not any(one.starsd["rounds"] for one in heard)
    # each second has its metrics, so two reads may differ
    eventually(lambda: fallbacks(star) == fallbacks(star, cause="no_hub") > 0, "no other cause")
    star.start("hub")
    rejoins(star)


def hang(star: LiveStar, part: str) -> dict[str, float]:
    """Stop the hub where it stands; seconds waited by the time each target had noticed."""
    if part == "loop":
        loop_of(star["hub"]).suspend()
    else:
        signal_pod(star["hub"], signal.SIGSTOP)
    for target in star.targets:
        eventually(partial(noticed, target), f"{target.name} notices the hung hub")
    return {target.name: waited(target) for target in star.targets}


def noticed(target: Service) -> bool:
    return value(target, "starsd:hub_breakers_open") == 1 or forgot_hub(target)


def waited(target: Service) -> float:
    return value(target, "starsd:proposal_wait_seconds_total")


def mean_step_s(target: Service) -> float:
    """The budget's unit."""
    count = value(target, "starsd:step_seconds_count")
    return value(target, "starsd:step_seconds_sum") / count


def fallbacks(star: LiveStar, **labels: str) -> float:
    name = "starsd:spec_decode_fallbacks_total"
    return sum(value(target, name, **labels) for target in star.targets)


@pytest.mark.parametrize("part", ["pod", "loop"])
def test_hung_hub_costs_a_few_waits_and_then_none(star: LiveStar, part: str) -> None:
    asked = questions(4, max_tokens=200)
    before, late = fallbacks(star), fallbacks(star, cause="late")
    noted: dict[str, float] = {}
    heard = star.through(asked, lambda: noted.update(hang(star, part)))
    assert texts(heard) == texts(star.plain(asked))
    eventually(lambda: star.idle, "nothing runs")
    for target in star.targets:
        more = waited(target) - noted[target.name]
        assert more < mean_step_s(target), "nobody waits behind an open breaker"
    assert 0 < fallbacks(star, cause="late") - late < (fallbacks(star) - before) / 4
    signal_pod(star["hub"], signal.SIGCONT)
    rejoins(star)
