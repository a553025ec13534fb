"""What we read of a config.json is what transformers reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import (
    AutoConfig,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from starsd.engine.native.architecture import Architecture, describe, read_architecture
from starsd.engine.support import check_compiled
from starsd.errors import ConfigError, UnsupportedModelError
from tests.unit.engine.test_runner import SIZES

SAME = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "tie_word_embeddings",
)
FAMILIES = [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def of(config: PreTrainedConfig, folder: Path, **changes: Any) -> dict[str, Any]:
    """Its config.json; a change to ``...`` leaves that out."""
    config.save_pretrained(folder)
    return rewrite(folder, **changes)


def rewrite(folder: Path, **changes: Any) -> dict[str, Any]:
    file = folder / "config.json"
    found = {**json.loads(file.read_text()), **changes}
    found = {name: value for name, value in found.items() if value is not ...}
    file.write_text(json.dumps(found))
    return found


def check_same(folder: Path) -> Architecture:
    """As transformers reads ``folder``."""
    found, config = read_architecture(folder), AutoConfig.from_pretrained(folder)
    assert [getattr(found, name) for name in SAME] == [getattr(config, name) for name in SAME]
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert found.head_dim == dim
    assert found.sliding_window == getattr(config, "sliding_window", None)
    assert list(found.layer_types or ()) == (getattr(config, "layer_types", None) or [])
    for name, value in config.rope_parameters.items():
        assert found.rope_parameters[name] == value
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-5},
        {"head_dim": 32},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}},
        {"rope_parameters": {"rope_theta": 1e6, **LLAMA3}},
    ],
    ids=["plain", "tied", "heads", "linear", "llama3"],
)
def test_saved_by_transformers(
    family: type[PreTrainedConfig], changes: dict[str, Any], tmp_path: Path
) -> None:
    family(**{**SIZES, **changes}).save_pretrained(tmp_path)
    check_same(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "rope",
    [
        {},
        {"rope_theta": 250_000.0},
        {"rope_theta": 250_000.0, "rope_scaling": None},
        {"rope_theta": 250_000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": LLAMA3},
        {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    ],
    ids=["nothing", "theta", "null", "linear", "llama3", "yarn"],
)
def test_older_configs(
    family: type[PreTrainedConfig], rope: dict[str, Any], tmp_path: Path
) -> None:
    """Rotary parameters beside each other, and nothing said that has a default."""
    silent = dict.fromkeys(
        ("rope_parameters", "head_dim", "attention_bias", "mlp_bias", "tie_word_embeddings"), ...
    )
    config = family(**{**SIZES, "hidden_size": 128})
    of(config, tmp_path, **silent, layer_types=..., use_sliding_window=..., **rope)
    check_same(tmp_path)


def test_a_llama_older_than_grouped_queries(tmp_path: Path) -> None:
    of(LlamaConfig(**SIZES), tmp_path, num_key_value_heads=...)
    assert check_same(tmp_path).num_key_value_heads == SIZES["num_attention_heads"]


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (MistralConfig(**SIZES, sliding_window=100), 100),
        (MistralConfig(**SIZES, sliding_window=None), None),
        (Qwen2Config(**SIZES, sliding_window=100), None),
        (
            Qwen2Config(**SIZES, sliding_window=100, use_sliding_window=True, max_window_layers=1),
            100,
        ),
        (
            Qwen3Config(**SIZES, sliding_window=100, use_sliding_window=True, max_window_layers=9),
            None,
        ),
    ],
    ids=["mistral", "mistral without", "qwen2 without", "qwen2", "qwen3 in later layers"],
)
def test_windows_are_refused_past_their_size(
    config: PreTrainedConfig, window: int | None, tmp_path: Path
) -> None:
    config.save_pretrained(tmp_path)
    found = check_same(tmp_path)
    check_compiled(found, 100)
    if window is None:
        check_compiled(found, 200)
    else:
        with pytest.raises(UnsupportedModelError, match="STARSD_MAX_LENGTH to 100 or less"):
            check_compiled(found, 200)


def test_a_mistral_that_does_not_say(tmp_path: Path) -> None:
    of(MistralConfig(**SIZES), tmp_path, sliding_window=...)
    assert check_same(tmp_path).sliding_window == 4096


def test_first_layers(tmp_path: Path) -> None:
    found = describe(of(Qwen3Config(**SIZES), tmp_path))
    count = SIZES["num_hidden_layers"]
    assert found.first(count) == found
    assert found.first(1).layer_types == ("full_attention",)
    with pytest.raises(ConfigError, match=f"layers:9.*{count} layers"):
        found.first(9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"head_dim": 24, "intermediate_size": 80, "hidden_act": "gelu"},
            "heads of 24 dimensions, activation 'gelu', inputs that 32 divides not",
        ),
        ({"quantization_config": {"quant_method": "gptq"}}, "its kind of layers"),
        ({"vocab_size": ...}, "a config.json that lacks 'vocab_size'"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rotary embedding 'longrope'"),
        (
            {"rope_parameters": {"rope_type": "llama3"}},
            "a config.json that lacks 'low_freq_factor'",
        ),
        ({"rope_parameters": {"full_attention": {}}}, "rotary embedding 'by layer'"),
        ({"partial_rotary_factor": 0.5}, "rotary embedding 'partial'"),
    ],
)
def test_what_is_not_known_is_named(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = of(LlamaConfig(**SIZES), tmp_path, **changes)
    with pytest.raises(UnsupportedModelError) as raised:
        describe(config)
    assert raised.value.message == (
        f"the compiled decoder does not know model type 'llama' with {said}"
    )


def test_another_family(tmp_path: Path) -> None:
    Gemma2Config(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="'gemma2' with its kind of layers"):
        read_architecture(tmp_path)


def test_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnsupportedModelError, match=r"config\.json"):
        read_architecture(tmp_path)
