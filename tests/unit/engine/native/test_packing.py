"""Packed from the files of a checkpoint, bit for bit what transformers' weights make."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from starsd.compiler import library
from starsd.engine.interface import Logits, Row
from starsd.engine.native import packing
from starsd.engine.native.architecture import read_architecture
from starsd.engine.native.decoder import SOURCE, NativeDecoder
from starsd.engine.native.packing import fits
from starsd.engine.native.runner import NativeRunner
from starsd.engine.native.source import Checkpoint
from starsd.engine.native.store import Weights
from starsd.engine.pretrained import StateDict
from starsd.errors import ConfigError
from tests.unit.engine.helpers import random_tokens
from tests.unit.engine.native.helpers import packed
from tests.unit.engine.test_runner import SIZES

BITS = [4, 8, 16]
ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES, rope_parameters={**ROPE, "rope_theta": 1e4}),
    "llama with biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "tied": LlamaConfig(**{**SIZES, "vocab_size": 331}, tie_word_embeddings=True),
    "mistral": MistralConfig(**SIZES),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, attention_bias=True),
}


@pytest.fixture(scope="module")
def compiled(native_cache: Path) -> ctypes.CDLL:
    return library(native_cache, SOURCE)


MODELS: Any = AutoModelForCausalLM
Compute = Callable[[Weights], Logits]


@pytest.fixture
def compute(compiled: ctypes.CDLL) -> Compute:
    def compute(weights: Weights) -> Logits:
        decoder = NativeDecoder(compiled, weights, slots=1, max_length=64)
        facts: dict[str, Any] = {"revision": "r", "fingerprint": "f", "kv_memory": 2**30}
        runner = NativeRunner(decoder, slots=1, max_length=64, **facts)
        return runner.forward([Row(0, random_tokens(50, 5), 0, want=50)])[0]

    return compute


def make(config: PreTrainedConfig) -> PreTrainedModel:
    torch.manual_seed(1)
    model: PreTrainedModel = MODELS.from_config(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight, std=0.3)
    return model


def check_same(folder: Path, bits: int, into: Path, compute: Compute) -> Weights:
    """Whether the files' weights are those of the model that transformers loads from them."""
    model = MODELS.from_pretrained(folder, dtype=torch.float32)
    ours, theirs = packed(folder, bits, into), packed(folder, bits, into, StateDict(model))
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_array_equal(array, theirs.arrays[name])
        assert array.ctypes.data % 64 == 0
    np.testing.assert_array_equal(compute(ours), compute(theirs))
    return ours


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", CONFIGS)
def test_families(name: str, bits: int, tmp_path: Path, compute: Compute) -> None:
    make(CONFIGS[name]).save_pretrained(tmp_path / "model")
    found = check_same(tmp_path / "model", bits, tmp_path, compute)
    assert ("embedding.tiles" in found.arrays) == (name != "tied")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bits", BITS)
def test_half_checkpoints(bits: int, dtype: torch.dtype, tmp_path: Path, compute: Compute) -> None:
    model: Any = make(CONFIGS["qwen2"])
    model.to(dtype).save_pretrained(tmp_path / "model")
    check_same(tmp_path / "model", bits, tmp_path, compute)


def test_sharded_checkpoints(tmp_path: Path, compute: Compute) -> None:
    make(CONFIGS["qwen3"]).save_pretrained(tmp_path / "model", max_shard_size="60KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 2
    check_same(tmp_path / "model", 8, tmp_path, compute)


@pytest.mark.parametrize("bits", BITS)
def test_small_blocks_change_no_bit(
    bits: int, tmp_path: Path, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix is packed a few rows at a time: here, 16."""
    make(CONFIGS["tied"]).save_pretrained(tmp_path / "model")
    whole = packed(tmp_path / "model", bits, tmp_path)
    monkeypatch.setattr(packing, "_BLOCK", 1)
    parts = packed(tmp_path / "model", bits, tmp_path)
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(array, parts.arrays[name])


@pytest.mark.parametrize("differs", [False, True])
def test_a_tied_model_with_a_head(differs: bool, tmp_path: Path, compute: Compute) -> None:
    """Tied unless the head differs from the embedding, as transformers has it."""
    model = make(CONFIGS["tied"])
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    head = tensors["model.embed_tokens.weight"].clone()
    head[-1, -1] += differs
    save_file({**tensors, "lm_head.weight": head}, file, metadata={"format": "pt"})
    found = check_same(tmp_path / "model", 16, tmp_path, compute)
    assert ("embedding.tiles" in found.arrays) == differs


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("model.norm.weight"),
        lambda tensors: tensors.update({"lm_head.weight": torch.zeros(3, 64)}),
        lambda tensors: tensors.update({"lm_head.weight": torch.zeros(320, 64, dtype=torch.int8)}),
    ],
    ids=["missing", "another shape", "quantised"],
)
def test_weights_that_are_not_as_described(change: Callable[[Any], None], tmp_path: Path) -> None:
    make(CONFIGS["llama"]).save_pretrained(tmp_path)
    source = Checkpoint(tmp_path)
    assert fits(read_architecture(tmp_path), source)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert not fits(read_architecture(tmp_path), Checkpoint(tmp_path))
    with pytest.raises(ConfigError, match=r"norm\.weight|lm_head\.weight"):
        packed(tmp_path, 8, tmp_path)


@pytest.mark.parametrize(
    "contents", [b"", b"no tensors", (1 << 60).to_bytes(8, "little"), b"\2\0\0\0\0\0\0\0[]"]
)
def test_other_files_are_refused(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(contents)
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        Checkpoint(tmp_path)


def test_files_that_are_cut_off_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    whole = (tiny_model / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(ConfigError, match="cut off"):
        Checkpoint(tmp_path)


def test_an_index_of_missing_files(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    with pytest.raises(ConfigError, match=r"model-1\.safetensors"):
        Checkpoint(tmp_path)
    index.write_text("[]")
    with pytest.raises(ConfigError, match=r"index\.json"):
        Checkpoint(tmp_path)
