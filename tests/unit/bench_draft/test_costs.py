from __future__ import annotations

from collections.abc import Sequence

import pytest

from starsd.bench.draft.costs import PLACES, measure, middles
from starsd.bench.draft.drafts import Draft
from starsd.bench.draft.setup import Shape
from starsd.drafters.eagle import EagleDrafter
from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Logits, Row
from starsd.errors import ConfigError
from tests.scripted_head import ScriptedHead, TappedRunner, make_head, make_target
from tests.unit.bench_draft.support import draft_settings, drafts_of, texts_of
from tests.unit.bench_engine.support import Clock, timer_of

SHAPES = {"chain": Shape(4, 0), "tree": Shape(4, 12)}


class SlowTarget(TappedRunner):
    """1 s a step, and 0.02 s for each row of it."""

    clock: Clock

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        self.clock.now += 0.98 + 0.02 * sum(len(row.tokens) for row in rows)
        return super().forward(rows)


class SlowDrafter(EagleDrafter):
    """0.2 s a step of a chain, 0.3 s of a tree."""

    clock: Clock

    def step(self, sequences: list[DraftSequence]) -> int:
        (sequence,) = sequences
        self.clock.now += 0.2 if sequence.max_nodes < 5 else 0.3
        return super().step(sequences)


@pytest.fixture
def clock() -> Clock:
    SlowTarget.clock = SlowDrafter.clock = clock = Clock()
    return clock


def slow_target() -> SlowTarget:
    model = make_target()._model
    return SlowTarget(model)


def slow_draft(head: ScriptedHead) -> Draft:
    return Draft("slow", SlowDrafter(head, draft_settings()), head.layers)


def test_costs_are_in_plain_steps(clock: Clock) -> None:
    head = make_head()
    drafts = drafts_of(slow_draft(head), Draft("ngram"))
    found = measure(slow_target(), drafts, texts_of(), SHAPES, timer_of(clock), "T 0")
    assert found.plain_ms == pytest.approx(1000)
    assert found.verify == {"chain": pytest.approx(1.08), "tree": pytest.approx(1.24)}
    assert found.draft == {
        ("slow", "chain"): pytest.approx(0.2),
        ("slow", "tree"): pytest.approx(0.3),
    }
    assert head.torn == 0


def test_prompts_are_read_once_and_steps_are_of_one_sequence(clock: Clock) -> None:
    head = make_head()
    timer = timer_of(clock)
    drafts = drafts_of(slow_draft(head))
    measure(slow_target(), drafts, texts_of(), {"chain": SHAPES["chain"]}, timer, "T 0")
    assert list(timer.raw["T 0"]) == ["target, plain", "target, chain", "slow, chain"]
    places = middles(texts_of(), [head], 4)
    later = head.batches[len(places) * 4 :]
    assert {len(rows) for rows in head.batches} == {1}
    assert {len(rows[0].tokens) for rows in later} == {1}
    assert len(later) == 3 * 4 * len(places)


def test_places_are_in_the_middle_of_a_few_answers() -> None:
    texts = texts_of() * 2
    places = middles(texts, [make_target(), make_head()], 15)
    assert len(places) == PLACES
    assert len(middles(texts, [make_target(), make_head(slots=2)], 15)) == 2
    assert [place.length for place in places[:2]] == [3 + 1 + 14, 50 + 1 + 14]


def test_answers_without_a_round_are_told() -> None:
    with pytest.raises(ConfigError, match="raise --max-tokens"):
        middles(texts_of(count=2), [make_target()], 15)
