"""Rotary embedding against transformers'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from starsd.engine.native.rope import KINDS, rope_parameters, rope_tables

LENGTH, DIM = 2048, 64
ORIGINAL = {"original_max_position_embeddings": 512}
TURNS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
BETAS = {"beta_fast": 16, "beta_slow": 2}
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 1e5},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.5},
    {"rope_type": "llama3", "factor": 8.0, **TURNS, **ORIGINAL},
    {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, **ORIGINAL},
    {"rope_type": "yarn", "factor": 4.0, **BETAS, "truncate": False, **ORIGINAL},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, **ORIGINAL},
    {"rope_type": "yarn", "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 0.5, **ORIGINAL},
]


@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope["rope_type"])
def test_kinds(rope: dict[str, Any]) -> None:
    config = LlamaConfig(
        hidden_size=128,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_theta": 10_000.0, **rope},
    )
    rotary: Any = LlamaRotaryEmbedding(config)
    expected = rotary(torch.zeros(1), torch.arange(LENGTH)[None])
    ours = rope_parameters(
        {"rope_parameters": config.rope_parameters, "max_position_embeddings": LENGTH}
    )
    for found, theirs in zip(rope_tables(ours, DIM, LENGTH), expected, strict=True):
        assert found.dtype == np.float32
        # a last digit of a frequency turns the last position by 1e-4
        np.testing.assert_allclose(found, theirs[0, :, : DIM // 2].numpy(), atol=2e-4)
        np.testing.assert_allclose(found[:16], theirs[0, :16, : DIM // 2].numpy(), atol=2e-6)


def test_every_kind_is_tested() -> None:
    assert {rope["rope_type"] for rope in ROPES} == set(KINDS)
