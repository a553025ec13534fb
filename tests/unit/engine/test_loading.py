from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from starsd.engine.interface import Row, Runner
from starsd.engine.loading import load_drafter_runner, load_model
from starsd.errors import ConfigError
from tests import tiny
from tests.scripted import EchoModel
from tests.unit.engine.helpers import draft_settings, random_tokens, settings

Load = Callable[..., Runner]


@pytest.fixture(scope="module")
def load(tiny_model: Path) -> Load:
    def _load(draft: str) -> Runner:
        return load_drafter_runner(draft_settings(tiny_model, draft=draft))

    return _load


def _continue(runner: Runner, tokens: list[int], count: int) -> list[int]:
    """``tokens`` and ``count`` more, greedily."""
    text, start = list(tokens), 0
    for _ in range(count):
        logits = runner.forward([Row(0, text[start:], start)])[0]
        start = len(text)
        text.append(int(logits[-1].argmax()))
    return text


def _agreement(target: Runner, draft: Runner) -> float:
    """Share of greedy tokens on which the draft agrees, over the target's own texts."""
    same = []
    for seed in range(6):
        text = _continue(target, random_tokens(10, seed), 60)
        target_picks, draft_picks = (
            runner.forward([Row(0, text, 0, want=60)])[0].argmax(axis=1)
            for runner in (target, draft)
        )
        same.append(target_picks == draft_picks)
    return float(np.mean(same))


def test_self_draft_always_agrees(load: Load) -> None:
    assert _agreement(load("self"), load("self")) == 1.0


@pytest.mark.parametrize("draft", [tiny.LAYERS_DRAFT, tiny.NOISY_DRAFT])
def test_derived_drafts_agree_sometimes(load: Load, draft: str) -> None:
    assert 0.2 < _agreement(load("self"), load(draft)) < 0.9


def test_all_layers_are_the_target_itself(load: Load) -> None:
    tokens = random_tokens(20, 1)
    whole, full, first = (
        load(draft).forward([Row(0, tokens, 0)])[0] for draft in ("self", "layers:4", "layers:1")
    )
    np.testing.assert_array_equal(whole, full)
    assert np.abs(whole - first).max() > 0.1


def test_noise_is_always_the_same(load: Load) -> None:
    tokens = random_tokens(20, 1)
    one, two = (load("noisy:0.1").forward([Row(0, tokens, 0)])[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_derived_drafts_have_their_own_revision(load: Load) -> None:
    revisions = [load(draft).revision for draft in ("self", "layers:2", "noisy:0.1")]
    assert len(set(revisions)) == 3
    assert revisions[1].startswith(revisions[0])


def test_other_folder(load: Load, tiny_model: Path) -> None:
    assert load(str(tiny_model)).revision == load("self").revision


def test_too_many_layers(load: Load) -> None:
    with pytest.raises(ConfigError, match="4 layers"):
        load("layers:5")


def test_real_model(tiny_model: Path) -> None:
    model = load_model(settings(tiny_model))
    runner = model.runner()
    assert runner.vocab_size == model.tokenizer().vocab_size == 320
    assert runner.slots == 6


def test_missing_weights_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.up_proj"):
        load_model(settings(folder)).runner()


def test_unreadable_weights_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "copy")
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match="does not load"):
        load_model(settings(folder)).runner()


def test_length_is_capped_by_the_models_context(tiny_model: Path) -> None:
    runner = load_model(settings(tiny_model, max_length=100_000)).runner()
    assert runner.max_length == tiny.CONTEXT


def test_scripted_model(tmp_path: Path) -> None:
    model = load_model(settings(tmp_path, scripted="tests.scripted:EchoModel"))
    assert isinstance(model, EchoModel)
    draft = draft_settings(tmp_path, scripted="tests.scripted:EchoModel", max_sequences=3)
    assert load_drafter_runner(draft).slots == 3


def test_a_drafter_must_roll_back(tmp_path: Path) -> None:
    draft = draft_settings(tmp_path, scripted="tests.scripted:GrowingModel")
    with pytest.raises(ConfigError, match=r"STARSD_DRAFT='auto': .* roll back .*--draft none"):
        load_drafter_runner(draft)


@pytest.mark.parametrize("name", ["tests.scripted", "tests.scripted:Nobody", "no.where:X", ":"])
def test_scripted_class_must_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="STARSD_SCRIPTED"):
        load_model(settings(tmp_path, scripted=name))


def test_draft_of_its_own_has_its_own_revision(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision))
        return str(tiny_model)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    revisions = {"revision": "v2", "draft_revision": "d1"}
    load_drafter_runner(draft_settings(tiny_model, draft="org/small", **revisions))
    load_drafter_runner(draft_settings("org/big", draft="self", **revisions))
    assert asked == [("org/small", "d1"), ("org/big", "v2")]


def test_what_text_needs_is_fetched_without_the_weights(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        for path in tiny_model.iterdir():
            if any(path.match(pattern) for pattern in allow_patterns):
                shutil.copy(path, tmp_path)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = load_model(settings("org/big"))
    assert model.vocabulary() == load_model(settings(tiny_model)).vocabulary()
    assert model.tokenizer().encode_chat([{"role": "user", "content": "a star"}])
    assert not list(tmp_path.glob("*.safetensors"))
    assert model.runner().vocab_size == 320
    assert list(tmp_path.glob("*.safetensors"))
