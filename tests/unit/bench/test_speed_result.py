from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from starsd.bench.prompts import Prompt
from starsd.bench.record import as_line
from starsd.bench.speed_result import Counts, Result, Timed, round_us, summarise
from starsd.errors import ConfigError
from starsd.protocol.frames import RequestStats
from tests.unit.bench.answers import COUNTS, MACHINE, timed, trio


def result(answers: Iterable[Timed], counts: Counts = COUNTS, strict: bool = False) -> Result:
    return summarise(answers, counts, {"model": "m"}, MACHINE, batch_invariant=strict)


def three_prompts() -> list[Timed]:
    """Star over plain 1, 2 and 0.5; the medians are 20, 15 and 20."""
    return [
        *trio(10, 5, 10, prompt="a"),
        *trio(20, 15, 40, prompt="b"),
        *trio(40, 25, 20, prompt="c"),
    ]


def test_speeds_are_medians_and_ratios_those_of_medians() -> None:
    found = result(three_prompts())
    assert (found.plain_tokens_per_s, found.colocated_tokens_per_s) == (20, 15)
    assert found.star_tokens_per_s == 20
    assert found.star_over_plain == 1
    assert found.star_over_colocated == pytest.approx(4 / 3)
    assert found.spread["star_over_plain"] == (0.75, 1.5)
    assert found.spread["star_over_colocated"] == pytest.approx((1.4, 7 / 3))


def test_repeats_are_answers_of_their_own() -> None:
    answers = chain(*(trio(10, 10, speed, repeat=n) for n, speed in enumerate((10, 30, 20))))
    found = result(answers)
    assert (found.total, found.star_tokens_per_s) == (3, 20)


def test_a_prompt_without_a_speed_everywhere_counts_nowhere_in_speed() -> None:
    short = [*trio(10, 10, 0, prompt="short"), *trio(10, 10, 20, prompt="long")]
    found = result(short)
    assert (found.star_tokens_per_s, found.plain_tokens_per_s, found.total) == (20, 10, 2)
    assert found.spread["star_over_plain"] == (2, 2)
    with pytest.raises(ConfigError, match="--max-tokens"):
        result(trio(10, 10, 0))


def test_ttft_is_a_median_by_variant() -> None:
    answers = [
        timed(variant, prompt=str(n), ttft_s=first / 1000)
        for variant, firsts in (("plain", (1, 2, 9)), ("star", (4, 8, 6)), ("colocated", (5, 5, 5)))
        for n, first in enumerate(firsts)
    ]
    assert result(answers).ttft_ms == pytest.approx({"plain": 2, "colocated": 5, "star": 6})


def test_rounds_are_the_stars() -> None:
    more = RequestStats(rounds=1, proposed=4, accepted=4, fallbacks=2)
    found = result([*trio(1, 1, 1, prompt="a"), *trio(1, 1, 1, prompt="b", stats=more)])
    assert (found.rounds, found.fallbacks) == (5, 3)
    assert found.tokens_per_round == pytest.approx(13 / 5)
    assert found.acceptance == pytest.approx(8 / 14)


def test_acceptance_by_position_is_of_the_proposals_that_long() -> None:
    assert result(trio(1, 1, 1)).acceptance_by_position == [0.75, 0.25, 0.0]
    many = Counts(rounds=1, proposed={"10": 2, "9": 4, "11": 0}, accepted={"10": 1, "9": 3})
    assert result(trio(1, 1, 1), many).acceptance_by_position == [0.75, 0.5]


def test_a_round_is_its_parts_and_the_rest() -> None:
    times = round_us(COUNTS, decode_s=0.2)
    assert times == pytest.approx(
        {
            "queue": 1_000,
            "draft": 10_000,
            "network": 2_000,
            "verify": 25_000,
            "rest": 12_000,
            "total": 50_000,
        }
    )
    assert result(trio(10, 10, 100)).round_us == pytest.approx(times)


def test_a_star_whose_draft_never_answers_has_no_rounds() -> None:
    found = result(trio(10, 10, 10, stats=RequestStats(fallbacks=20)), Counts())
    assert (found.tokens_per_round, found.acceptance, found.round_us) == (None, None, {})
    assert found.star_over_plain == 1
    assert json.loads(as_line(found))["tokens_per_round"] is None


def test_counts_are_differences() -> None:
    before = Counts(1, {"0": 1}, {"0": 1}, {"draft": 0.5})
    after = Counts(3, {"0": 3, "1": 2}, {"0": 2, "1": 1}, {"draft": 2.0})
    assert after.since(before) == Counts(2, {"0": 2, "1": 2}, {"0": 1, "1": 1}, {"draft": 1.5})


def test_the_best_plain_of_all_precisions_is_what_counts() -> None:
    pairs = [*trio(10, 10, 30, prompt="a"), *trio(20, 10, 30, prompt="b")]
    alone = result(pairs)
    assert alone.plain_by_precision == {"plain": 15}
    assert alone.star_over_best_plain == alone.star_over_plain == 2
    others = [timed("plain int4", speed, prompt=one) for one, speed in (("a", 50), ("b", 70))]
    found = result([*pairs, *others])
    assert found.plain_by_precision == {"plain": 15, "plain int4": 60}
    assert (found.star_over_plain, found.star_over_best_plain) == (2, 0.5)


def test_looping_answers_are_told_apart() -> None:
    looping = tuple(range(9)) * 5
    good = RequestStats(rounds=1, proposed=4, accepted=4)
    found = result(
        [
            *trio(1, 1, 1, prompt="a", ids=looping, stats=good),
            *trio(1, 1, 1, prompt="b", ids=tuple(range(40))),
        ]
    )
    assert found.looping == 1
    assert (found.tokens_per_round, found.tokens_per_round_without_loops) == (13 / 5, 2)


def test_categories_are_told_apart() -> None:
    good = RequestStats(rounds=2, proposed=8, accepted=8)
    rewrite, writing = result(
        [
            *trio(10, 20, 40, prompt="r1", category="rewrite", stats=good),
            *trio(10, 10, 10, prompt="w1"),
            *trio(10, 20, 40, prompt="r1", category="rewrite", stats=good, repeat=1),
        ]
    ).categories
    assert (rewrite.category, rewrite.prompts, rewrite.acceptance) == ("rewrite", 1, 1.0)
    assert (rewrite.tokens_per_round, rewrite.star_over_plain) == (5, 4)
    assert rewrite.star_over_colocated == 2
    assert (writing.category, writing.tokens_per_round, writing.star_over_plain) == (
        "writing",
        2,
        1,
    )


@pytest.mark.parametrize(("strict", "passed"), [(True, False), (False, True)])
def test_a_differing_answer_is_counted_and_fails_where_none_may(strict: bool, passed: bool) -> None:
    same = trio(1, 1, 1, prompt="same")
    star, *others = trio(1, 1, 1, prompt="other")
    star = replace(star, answer=replace(star.answer, ids=[1, 2, 4]))
    found = result([*same, star, *others], strict=strict)
    assert (found.identical, found.different, found.total) == (1, 1, 2)
    assert found.passed is passed
    assert result(same, strict=True).passed


def test_an_answer_as_raw_data() -> None:
    stats = RequestStats(rounds=2, proposed=8, accepted=5, fallbacks=1)
    one = timed("star", 40, stats=stats, repeat=3)
    wanted: dict[str, Any] = {
        "prompt": "writing-1",
        "category": "writing",
        "variant": "star",
        "repeat": 3,
        "tokens": 3,
        "reason": "stop",
        "ttft_ms": 100.0,
        "decode_s": 0.5,
        "tokens_per_s": 40.0,
        "rounds": 2,
        "proposed": 8,
        "accepted": 5,
        "fallbacks": 1,
        "text": "t",
    }
    assert one.as_json() == wanted


def test_whose_answer_it_is() -> None:
    prompt = Prompt("math-1", "math", ("Hi.",))
    one = timed("plain").of(prompt, "star", 2)
    assert (one.prompt, one.category, one.variant, one.repeat) == ("math-1", "math", "star", 2)
