"""Which drafter comes of which name, and with which settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from starsd.bench.draft.drafts import Draft, open_drafts, room
from starsd.bench.draft.setup import check, draft_settings, target_settings
from starsd.drafters import loading
from starsd.drafters.eagle import EagleDrafter
from starsd.drafters.lm import LmDrafter
from starsd.errors import ConfigError
from starsd.settings.draft import DraftSettings
from starsd.settings.model import ModelSettings
from tests.scripted import HashModel
from tests.scripted_head import ScriptedHead, features_of, make_head, make_target, state_after
from tests.unit.bench_draft.support import SETUP, drafts_of, head_draft, texts_of


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[DraftSettings]:
    """What was loaded; "head" is a head."""
    seen: list[DraftSettings] = []

    def load_head(settings: DraftSettings, folder: Path) -> ScriptedHead:
        assert folder == Path("head")
        seen.append(settings)
        return ScriptedHead(settings)

    def load_runner(settings: DraftSettings) -> Any:
        seen.append(settings)
        return HashModel(settings).runner()

    monkeypatch.setattr(loading, "load_head", load_head)
    monkeypatch.setattr(loading, "load_drafter_runner", load_runner)
    monkeypatch.setattr(
        loading, "head_folder", lambda one: Path("head") if one.draft == "head" else None
    )
    return seen


def test_each_by_its_name_once(loaded: list[DraftSettings]) -> None:
    setup = replace(SETUP, drafts=("head", "layers:2", "ngram", "head"))
    head, lm, ngram = open_drafts(setup, make_target(), 300)
    assert isinstance(head.drafter, EagleDrafter)
    assert isinstance(lm.drafter, LmDrafter)
    assert ngram == Draft("ngram")
    assert [one.draft for one in loaded] == ["head", "layers:2"]
    assert (head.layers, lm.layers) == ((1, 3), ())
    assert (head.makes, ngram.makes) == (("chain", "tree"), ("chain",))


def test_drafts_are_loaded_as_the_target_is(loaded: list[DraftSettings]) -> None:
    setup = replace(SETUP, model="some", quantize="int8")
    open_drafts(setup, make_target(), 300)
    target = target_settings(setup, 300)
    served: list[ModelSettings] = [target, *loaded]
    for one in served:
        assert (one.model, one.quantize, one.dtype) == ("some", "int8", "auto")
        assert (one.max_length, one.threads, one.max_sequences) == (300, 1, 16)
    assert target_settings(replace(setup, quantize="none", dtype="bfloat16"), 300).dtype == (
        "bfloat16"
    )


def test_a_step_reads_whatever_is_new_and_trees_are_drafted() -> None:
    settings = draft_settings(SETUP, "self", 300)
    assert (settings.prefill_chunk, settings.step_tokens, settings.trees) == (300, 4800, "on")


def test_a_head_for_another_target_is_refused(
    loaded: list[DraftSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedHead, "target_revision", "another")
    with pytest.raises(ConfigError, match="drafts for another, target is scripted-StateModel"):
        open_drafts(replace(SETUP, drafts=("head",)), make_target(), 300)
    assert len(loaded) == 1


def test_room_is_the_shortest() -> None:
    short = head_draft(make_head(length=100))
    assert room([Draft("ngram"), short], make_target(length=256)) == 100
    assert room([Draft("ngram")], make_target(length=256)) == 256


def test_features_are_of_the_drafts_own_layers() -> None:
    (text, *_) = texts_of(taps=(1, 2, 3))
    head, other = head_draft(), Draft("other", head_draft().drafter, (2,))
    both = drafts_of(head, other)
    states = [state_after(text.tokens[: end + 1]) for end in range(4, 9)]
    for draft in (head, other):
        wanted = [features_of(state, draft.layers) for state in states]
        np.testing.assert_array_equal(both.features(draft, text, 4, 9), wanted)
    assert both.features(Draft("lm"), text, 4, 9) is None


@pytest.mark.parametrize(
    ("changes", "environment"),
    [
        ({"dtype": "int3"}, {}),
        ({"drafts": ("self", "none")}, {}),
        ({}, {"STARSD_DEVICE": "cuda"}),
        ({}, {"STARSD_NONE": "1"}),
    ],
)
def test_what_cannot_be_is_told_first(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError):
        check(replace(SETUP, **changes))


def test_a_good_setup_and_its_shapes() -> None:
    check(SETUP)
    assert SETUP.shapes == {"chain": (4, 0), "tree": (4, 12)}
    assert replace(SETUP, nodes=4).shapes == {"chain": (4, 0)}
