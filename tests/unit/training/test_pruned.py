"""Layers of the target as a language model, where layers are of several kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from training.pruned import PrunedModel
from training.teacher import Teacher


def test_kept_layers_keep_their_kind_of_attention(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "head_dim": 16,
        "vocab_size": 96,
    }
    heads: dict[str, Any] = {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 4,
    }
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 2,
    }
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, **windows)).save_pretrained(tmp_path / "target")
    student = PrunedModel(Teacher(tmp_path / "target", "cpu"), (0, 3))
    weights, config = student.checkpoint()
    assert config["layer_types"] == ["full_attention", "sliding_attention"]
    tokens = torch.randint(96, (1, 20))
    (states,) = student.drafted(torch.empty(0), tokens, torch.tensor([20]))
    (tmp_path / "draft").mkdir()
    save_file(
        {name: one.contiguous() for name, one in weights.items()},
        tmp_path / "draft" / "model.safetensors",
        {"format": "pt"},
    )
    student.model.config.save_pretrained(tmp_path / "draft")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "draft", dtype=torch.float32)
    again = model.model(tokens[:, :-1]).last_hidden_state[:, 1:]
    torch.testing.assert_close(again, states, rtol=0.05, atol=0.05)
