from __future__ import annotations

import pytest

from starsd.bench.scale.counters import Look
from starsd.bench.scale.load import Came, Span, Stream, question, streams
from starsd.bench.scale.point import Point, summed
from starsd.plan.star import Mode
from tests.unit.bench_scale.support import make_world

WORLD = make_world()


def test_streams_begin_at_different_texts() -> None:
    found = streams(["a", "b"], [WORLD, WORLD], [2, 1])
    assert [(one.target, one.url, one.first) for one in found] == [
        (0, "a", 0),
        (0, "a", 5),
        (1, "b", 10),
    ]


def test_a_question_asks_for_all_of_the_recorded_answer() -> None:
    (stream,) = streams(["a"], [WORLD], [1])
    asked = question(stream, 3, WORLD.texts[3])
    assert asked.messages == [{"role": "user", "content": "3"}]
    assert (asked.max_tokens, asked.sampling.temperature) == (40, 0.0)


def came(*events: tuple[float, int, int], target: int = 0) -> Stream:
    return Stream(target, "a", WORLD, 0, came=[Came(*event) for event in events])


def test_rounds_and_what_is_between_answers() -> None:
    stream = came((1.0, 1, 0), (1.5, 3, 1), (2.5, 2, 4), (3.0, 1, 0), (9.0, 4, 1))
    assert stream.tokens(1.0, 9.0) == 7
    assert stream.rounds(1.0, 9.0) == [Span(0, 1, 4), Span(0, 4, 6)]
    assert stream.gaps(1.0, 9.0) == [0.5, 1.0]
    assert stream.pauses(1.0, 9.0) == [0.5]
    assert stream.gaps(2.0, 9.0) == []  # one that began before does not count


def test_a_point_is_summed_by_target() -> None:
    asked = [
        came((0.0, 1, 0), (0.5, 3, 1), (1.0, 3, 4)),
        came((0.2, 1, 0), (0.6, 2, 1), target=1),
        came((0.3, 5, 1), target=1),
    ]
    asked[2].mismatched = 1
    hub = {"busy_s": 3.0, "idle_s": 5.0, "other_s": 2.0}
    look = Look(hub, [{"wait_s": 0.2, "steps": 4.0}] * 2, {})
    found = summed(asked, Point(Mode.BATCHED, (1, 2), 5), 0.0, 2.0, look)
    assert found.tokens_per_s == [3.5, 4.0]
    assert found.throughput == 7.5
    assert [[round(gap) for gap in gaps] for gaps in found.gaps_ms] == [[500, 500], [400]]
    assert found.tokens_per_round == (3 + 3 + 2 + 5) / 4
    assert found.mismatched == 1
    assert found.spans == []  # all rounds were of one depth
    assert (found.busy, found.unforced, found.idle) == (0.3, 0.2, 0.7)
    assert found.wait_ms == 50.0
    assert found.round_s == pytest.approx(1.4 / 3)


def test_rounds_of_many_depths_are_kept() -> None:
    asked = [came((0.0, 1, 0), (0.5, 3, 1)), came((0.1, 1, 0), (0.6, 2, 1), target=1)]
    found = summed(asked, Point(Mode.BATCHED, (1, 1), 8, "auto"), 0.0, 2.0, Look({}, [{}] * 2, {}))
    assert found.spans == [Span(0, 1, 4), Span(0, 1, 3)]


def test_without_a_hub_nothing_is_idle() -> None:
    found = summed([came()], Point(Mode.PLAIN, (1,), 0), 0.0, 2.0, Look({}, [{}], {}))
    assert (found.busy, found.idle, found.unforced, found.hits, found.round_s) == (0, 0, 0, 0, 0)


def test_hits_are_a_share_of_the_jobs_that_were_met() -> None:
    look = Look({"met_hit": 3.0, "met_miss": 1.0}, [{}], {})
    assert summed([came()], Point(Mode.RUN_AHEAD, (1,), 5), 0.0, 2.0, look).hits == 0.75
