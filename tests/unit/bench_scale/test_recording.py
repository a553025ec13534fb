"""Recording with scripted models, in this process."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from starsd.bench.draft.setup import draft_settings as draft_settings_of
from starsd.bench.draft.setup import target_settings
from starsd.bench.scale import gaps, ranks, timing
from starsd.bench.scale.calibration import acceptance, record
from starsd.bench.scale.gaps import Gap
from starsd.bench.scale.models import DEEPEST, Source, loaded
from starsd.drafters.lm import LmDrafter
from starsd.errors import ConfigError
from starsd.plan.acceptance import CHOICES
from tests.scripted import EOS, VOCAB, DriftModel
from tests.unit.bench_draft.support import draft_settings

SOURCE = Source("m", "self", "auto", "none", prompts=3, max_tokens=24)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_SCRIPTED", "tests.scripted:HashModel")


def test_a_recording() -> None:
    said: list[str] = []
    world = record(SOURCE, said.append, repeats=2)
    assert [len(text.answer) for text in world.texts] == [24] * 3
    assert {rank for text in world.texts for rank in text.ranks[1:]} == {0}  # its own weights
    assert {text.ranks[0] for text in world.texts} == {CHOICES}
    assert acceptance(world).tokens(5) == 6
    assert (world.eos, world.vocab_size) == ((EOS,), VOCAB)
    assert world.costs.draft_next.sizes == (1, 2)
    assert max(world.costs.verify.sizes) == 2 * timing.MANY_ROWS
    assert min(world.costs.verify.seconds) > 0
    assert len(world.verify_factors) <= 2
    assert said == [
        "loading target and draft",
        "3 answers, and what the draft knows of them",
        "times of steps",
    ]


def test_model_draft_and_precision() -> None:
    """model, draft, dtype and quantize are those of a target and a hub."""
    setup = Source("folder", "layers:2", "auto", "int8", prompts=3, max_tokens=24).setup
    target, hub = target_settings(setup, 512), draft_settings_of(setup, "layers:2", 512)
    assert {(one.model, one.dtype, one.quantize) for one in (target, hub)} == {
        ("folder", "auto", "int8")
    }
    assert (setup.drafts, hub.draft) == (("layers:2",), "layers:2")


def test_prompts_and_max_tokens() -> None:
    """prompts and max-tokens."""
    with loaded(replace(SOURCE, prompts=2, max_tokens=9)) as models:
        assert len(models.questions) == 2
        assert [len(text.own) for text in models.answer(most=1)] == [9]
        assert os.sched_getaffinity(0) == {min(os.sched_getaffinity(0))}


def test_ranks_of_a_draft_that_is_wrong_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_WRONG", "0.4")
    with loaded(SOURCE) as models:
        settings = draft_settings(max_length=1024, prefill_chunk=1024, step_tokens=4096)
        drafter = LmDrafter(DriftModel(settings).runner(), settings)
        models.draft = replace(models.draft, drafter=drafter)
        found = [rank for text in ranks.texts(models) for rank in text.ranks[1:]]
    assert 0.45 < found.count(0) / len(found) < 0.8
    assert found.count(CHOICES) > 0  # where it is wrong it has no idea
    assert max(found) == CHOICES


def test_no_draft_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a draft"), loaded(replace(SOURCE, draft="none")):
        pass


def test_gaps_before_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    with loaded(SOURCE) as models:
        models.answer()
        found = gaps.measure(models, DEEPEST, rounds=3).found
    assert [one.gap_ms for one in found] == [0, 1, 5, 20, 100]
    assert slept == [gap / 1000 for gap in gaps.GAPS_MS for _ in range(3)]
    assert all(0 < one.mean_ms <= one.p99_ms for one in found)


def test_a_gap_is_summed_in_milliseconds() -> None:
    assert gaps.summed(5, [0.001, 0.003]) == Gap(5, 2.0, 1.0, 3.0)
