from __future__ import annotations

from dataclasses import replace

import pytest

from starsd.bench.scale.real import Leg, leg
from starsd.bench.scale.run import real_error
from starsd.bench.speed_result import Timed
from starsd.check.client import Answer
from starsd.protocol.frames import RequestStats
from tests.unit.bench_scale.test_summary import REAL


def test_a_leg_sums_its_answers() -> None:
    stats = RequestStats(rounds=10, fallbacks=2)
    one = Timed(Answer(stats=stats), ttft_s=0.1, decode_s=0.5, decoded=30)
    found = leg("star", 2, [one, one], {"wait_s": 0.4, "draft_s": 0.1, "rounds": 20.0}, {})
    assert (found.tokens_per_s, found.rounds, found.steps) == (60, 20, 24)
    assert (found.wait_ms, found.part_s("draft"), found.part_s("verify")) == (20, 0.005, 0)


def test_a_real_round_is_the_sum_of_its_parts() -> None:
    """28 ms of parts, in answers of 100 rounds and 4 s."""
    assert real_error(REAL) == pytest.approx(1 - 0.028 / 0.04)


def test_without_a_star_there_is_no_error() -> None:
    nothing = Leg("plain", 0, 50.0, 10, 1.0, 0, 0, {}, {})
    assert real_error(replace(REAL, legs=[nothing])) is None
