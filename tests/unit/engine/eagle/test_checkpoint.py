"""What a head's folder says, in every layout it may come in, and what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs

from starsd.engine.checkpoint import weights_revision
from starsd.engine.eagle.checkpoint import Head, is_head, read_head
from starsd.engine.eagle.weights import HeadWeights, stored_in
from starsd.engine.native.architecture import HeadArchitecture
from starsd.errors import ConfigError
from tests.unit.engine.eagle.conftest import Load
from tests.unit.engine.eagle.heads import (
    DRAFT_VOCAB,
    EAGLE1,
    EAGLE3,
    TAPS,
    Tensors,
    draft_ids,
    eagle1,
    eagle3,
    random_states,
    write,
)
from tests.unit.engine.eagle.test_heads import whole
from tests.unit.engine.helpers import random_tokens

Rename = Callable[[str], str]


def speculator(tensors: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """As vLLM's speculators have it: the layer's shapes are described apart."""
    apart = {name: value for name, value in EAGLE3.items() if name not in ("architectures",)}
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFT_VOCAB,
        "norm_before_residual": False,
        "transformer_layer_config": apart,
    }
    return renamed(tensors, lambda name: name.replace("midlayer.", "layers.0.")), config


def renamed(tensors: Tensors, rename: Rename) -> Tensors:
    return {rename(name): one for name, one in tensors.items()}


@pytest.mark.parametrize("kind", ["torch", "16 bits"])
@pytest.mark.parametrize("layout", ["bin", "prefix", "speculator", "halves"])
def test_layouts_of_the_same_head(load: Load, tmp_path: Path, layout: str, kind: str) -> None:
    tensors, config = eagle3(), dict(EAGLE3)
    if layout == "halves":
        tensors = {
            name: one.bfloat16().float() if one.is_floating_point() else one
            for name, one in tensors.items()
        }
    plain = load(write(tmp_path / "plain", tensors, config), kind)
    if layout == "prefix":
        tensors = renamed(tensors, lambda name: f"model.{name}")
    if layout == "speculator":
        tensors, config = speculator(tensors)
    if layout == "halves":
        tensors = {
            name: one.bfloat16() if one.is_floating_point() else one.int()
            for name, one in tensors.items()
            if name != "t2d"
        }
    folder = write(tmp_path / "other", tensors, config, pickled=layout in ("bin", "halves"))
    head = load(folder, kind)
    np.testing.assert_array_equal(head.draft_ids, draft_ids().numpy())
    tokens, states = random_tokens(20, 1), random_states(20, 2)
    for one, other in zip(
        whole(head, 0, tokens, states), whole(plain, 0, tokens, states), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_eagle1_in_the_first_format(load: Load, tmp_path: Path) -> None:
    tokens, states = random_tokens(20, 1), random_states(20, 2)
    first, second = (
        whole(load(write(tmp_path / name, eagle1(), EAGLE1, pickled=pickled)), 0, tokens, states)
        for name, pickled in (("one", False), ("other", True))
    )
    np.testing.assert_array_equal(first.logits, second.logits)


@pytest.mark.parametrize(
    ("named", "taps"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}, (0, 2, 4)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}}, (1, 2, 4)),
    ],
    ids=["vLLM: into a layer", "SGLang: out of a layer"],
)
def test_taps(tmp_path: Path, tiny_model: Path, named: Any, taps: tuple[int, ...]) -> None:
    config = {**EAGLE3, "eagle_aux_hidden_state_layer_ids": None, **named}
    assert read_head(write(tmp_path, eagle3(), config), tiny_model).layers == taps


def test_taps_of_the_authors(tmp_path: Path, tiny_model: Path) -> None:
    """They need more layers than a tiny model has; the head shares none of its weights."""
    target = tmp_path / "target"
    target.mkdir()
    config = json.loads((tiny_model / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 30}))
    folder = write(
        tmp_path / "head", eagle3(), {**EAGLE3, "eagle_aux_hidden_state_layer_ids": None}
    )
    assert read_head(folder, target).layers == (2, 15, 27)


def test_ids_by_marks_alone(tmp_path: Path, tiny_model: Path) -> None:
    tensors = {name: one for name, one in eagle3().items() if name != "d2t"}
    head = read_head(write(tmp_path, tensors, EAGLE3), tiny_model)
    np.testing.assert_array_equal(head.draft_ids, draft_ids().numpy())


def test_revisions(tmp_path: Path, tiny_model: Path) -> None:
    own = weights_revision(tiny_model)
    for said, warned in ((None, False), (own, False), ("0123456789abcdef", True)):
        config = {**EAGLE3, "starsd": {"target_revision": said}}
        with capture_logs() as lines:
            head = read_head(write(tmp_path, eagle3(), config), tiny_model)
        assert (head.target.revision, bool(lines)) == (own, warned)
        assert head.revision == weights_revision(tmp_path)


def test_other_pickled_weights_are_another_revision(tmp_path: Path) -> None:
    folders = [write(tmp_path / str(seed), eagle3(seed), EAGLE3, pickled=True) for seed in (0, 1)]
    assert len({weights_revision(folder) for folder in folders}) == 2


def test_which_checkpoints_are_heads(tmp_path: Path, tiny_model: Path) -> None:
    plain = {name: value for name, value in EAGLE3.items() if name in EAGLE1}
    assert not is_head(tiny_model)
    assert is_head(write(tmp_path / "3", eagle3(), EAGLE3))
    assert is_head(write(tmp_path / "3, by its keys", eagle3(), plain))
    assert is_head(write(tmp_path / "1", eagle1(), EAGLE1))
    assert is_head(write(tmp_path / "1, pickled", eagle1(), EAGLE1, pickled=True))


def without(*names: str) -> Tensors:
    return {name: one for name, one in eagle3().items() if name not in names}


def shifted(by: int) -> Tensors:
    return {**without("t2d"), "d2t": eagle3()["d2t"] + by}


FAULTS: dict[str, tuple[Tensors, dict[str, Any], str]] = {
    "no midlayer": (without("midlayer.mlp.up_proj.weight"), {}, r"up_proj.weight \[96, 64\].*none"),
    "no norm": (without("norm.weight"), {}, r"want norm.weight \[64\], there is none"),
    "no head": (without("lm_head.weight"), {}, r"lm_head.weight \[96, 64\], there is \[320, 64\]"),
    "other shapes": (eagle3(), {"intermediate_size": 128}, r"\[128, 64\], there is \[96, 64\]"),
    "other taps": (
        eagle3(),
        {"eagle_aux_hidden_state_layer_ids": [1, 2]},
        r"fc.weight \[64, 128\]",
    ),
    "impossible taps": (eagle3(), {"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}, "of 4 layers"),
    "other vocabulary": (eagle3(), {"vocab_size": 300}, r"embed_tokens.weight \[300, 64\]"),
    "no ids": (without("d2t", "t2d"), {}, "needs d2t or t2d"),
    "ids below 0": (shifted(-400), {}, "96 ascending ids below 320"),
    "ids too high": (shifted(300), {}, "96 ascending ids below 320"),
    "ids in disorder": ({**without("t2d"), "d2t": -eagle3()["d2t"] % 200}, {}, "ascending"),
    "few ids": ({**without(), "d2t": eagle3()["d2t"][:-1]}, {}, r"d2t: want \[96\]"),
    "few marks": ({**without(), "t2d": eagle3()["t2d"][:-1]}, {}, r"t2d: want \[320\]"),
    "unlike ids": ({**without(), "t2d": eagle3()["t2d"].flip(0)}, {}, "name different tokens"),
    "ids that are floats": ({**without(), "d2t": eagle3()["d2t"].float()}, {}, "whole numbers"),
    "two layers": (eagle3(), {"num_hidden_layers": 2}, "2 layers, want 1"),
    "gelu": (eagle3(), {"hidden_act": "gelu"}, "activation 'gelu', want 'silu'"),
    "rope": (eagle3(), {"rope_scaling": {"rope_type": "longrope"}}, "rotary embedding 'longrope'"),
    "norm before fc": (eagle3(), {"norm_before_fc": True}, "norm_before_fc is not served"),
    "quantised": (eagle3(), {"quantization_config": {}}, "quantised weights are not served"),
    "half a config": (eagle3(), {"hidden_size": ...}, "lacks 'hidden_size'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(tmp_path: Path, tiny_model: Path, fault: str) -> None:
    tensors, changes, message = FAULTS[fault]
    config = {name: value for name, value in {**EAGLE3, **changes}.items() if value is not ...}
    with pytest.raises(ConfigError, match=message):
        read_head(write(tmp_path, tensors, config), tiny_model)


def test_unreadable_folders(tmp_path: Path, tiny_model: Path) -> None:
    folder = write(tmp_path / "head", eagle3(), EAGLE3)
    for text in ("{", "[]"):
        (folder / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"config\.json"):
            read_head(folder, tiny_model)
    write(folder, eagle3(), EAGLE3)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors and no \*\.bin"):
        read_head(folder, tiny_model)


def test_a_target_that_says_too_little(tmp_path: Path, tiny_model: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(tiny_model, target)
    (target / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="'num_hidden_layers'"):
        read_head(write(tmp_path / "head", eagle3(), EAGLE3), target)


class Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


@pytest.mark.parametrize("content", [{"fc.weight": Malice()}, [torch.zeros(2)], {"a": 1}])
def test_pickles_are_weights_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin"):
        stored_in(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_damaged_pickle(tmp_path: Path) -> None:
    for data in (b"", b"nonsense"):
        (tmp_path / "pytorch_model.bin").write_bytes(data)
        with pytest.raises(ConfigError, match="does not load as weights"):
            stored_in(tmp_path)


def test_the_target_lends_its_embedding_as_its_head(tmp_path: Path, tiny_model: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(tiny_model, target)
    tensors = load_file(target / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, target / "model.safetensors")
    weights = HeadWeights(write(tmp_path / "head", eagle1(), EAGLE1), target)
    np.testing.assert_array_equal(
        weights.whole("lm_head.weight"), weights.whole("embed_tokens.weight")
    )


def test_our_own_trainers_names(tmp_path: Path, tiny_model: Path) -> None:
    """What ``training.head.EagleHead.state_dict`` has, and ``d2t``: no embedding."""
    head: Head = read_head(
        write(tmp_path, without("embed_tokens.weight", "t2d"), EAGLE3), tiny_model
    )
    assert isinstance(head.of, HeadArchitecture)
    assert head.layers == TAPS
