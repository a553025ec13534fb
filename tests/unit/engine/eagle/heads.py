"""Random draft heads in the published layouts, and what they compute, written down plainly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from starsd.engine.interface import Features, States
from tests import tiny

HIDDEN, HEADS, KV_HEADS, DIM, INNER = 64, 4, 2, 16, 96
DRAFT_VOCAB = 96
TAPS = (1, 3, 4)
"""Of ``tests.tiny``, whose embedding and head these heads may share."""

Tensors = dict[str, Tensor]
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "num_hidden_layers": 1,
    "vocab_size": tiny.VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "hidden_act": "silu",
}
EAGLE3 = {
    **CONFIG,
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": DRAFT_VOCAB,
    "eagle_aux_hidden_state_layer_ids": list(TAPS),
}
EAGLE1 = {**CONFIG, "architectures": ["LlamaForCausalLM"], "bias": True}


def draft_ids() -> Tensor:
    """Of the draft vocabulary, ascending."""
    generator = torch.Generator().manual_seed(3)
    ids: Tensor = torch.randperm(tiny.VOCAB, generator=generator)[:DRAFT_VOCAB].sort().values
    return ids


class Maker:
    """Random tensors whose products keep unit variance."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def matrix(self, outputs: int, inputs: int) -> Tensor:
        found: Tensor = torch.randn(outputs, inputs, generator=self._generator) / inputs**0.5
        return found

    def bias(self, outputs: int) -> Tensor:
        return 0.3 * torch.randn(outputs, generator=self._generator)

    def norm(self, width: int) -> Tensor:
        return 1 + 0.2 * torch.randn(width, generator=self._generator)

    def layer(self, inputs: int) -> Tensors:
        return {
            "self_attn.q_proj.weight": 1.5 * self.matrix(HEADS * DIM, inputs),
            "self_attn.k_proj.weight": 1.5 * self.matrix(KV_HEADS * DIM, inputs),
            "self_attn.v_proj.weight": self.matrix(KV_HEADS * DIM, inputs),
            "self_attn.o_proj.weight": 2 * self.matrix(HIDDEN, HEADS * DIM),
            "mlp.gate_proj.weight": self.matrix(INNER, HIDDEN),
            "mlp.up_proj.weight": self.matrix(INNER, HIDDEN),
            "mlp.down_proj.weight": 2 * self.matrix(HIDDEN, INNER),
            "post_attention_layernorm.weight": self.norm(HIDDEN),
        }


def eagle3(seed: int = 0) -> Tensors:
    """By the names of the published checkpoints, embedding and head its own."""
    make, ids = Maker(seed), draft_ids()
    layer = {
        **make.layer(2 * HIDDEN),
        "hidden_norm.weight": make.norm(HIDDEN),
        "input_layernorm.weight": make.norm(HIDDEN),
    }
    return {
        "embed_tokens.weight": make.matrix(tiny.VOCAB, HIDDEN) * HIDDEN**0.5,
        "fc.weight": make.matrix(HIDDEN, len(TAPS) * HIDDEN),
        **{f"midlayer.{name}": one for name, one in layer.items()},
        "norm.weight": make.norm(HIDDEN),
        "lm_head.weight": 2 * make.matrix(DRAFT_VOCAB, HIDDEN),
        "d2t": ids - torch.arange(DRAFT_VOCAB),
        "t2d": torch.zeros(tiny.VOCAB, dtype=torch.bool).index_fill(0, ids, True),
    }


def eagle1(seed: int = 1) -> Tensors:
    """Likewise; head and embedding are the target's."""
    make = Maker(seed)
    layer = {f"layers.0.{name}": one for name, one in make.layer(HIDDEN).items()}
    return {
        "fc.weight": make.matrix(HIDDEN, 2 * HIDDEN),
        "fc.bias": make.bias(HIDDEN),
        **layer,
    }


def with_biases(tensors: Tensors) -> Tensors:
    """Of every linear layer but the head."""
    make, found = Maker(7), dict(tensors)
    for name, one in tensors.items():
        if name.endswith("_proj.weight") or name == "fc.weight":
            found[name.replace("weight", "bias")] = make.bias(len(one))
    return found


def write(
    folder: Path, tensors: Tensors, config: Mapping[str, Any], *, pickled: bool = False
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(
            {name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors"
        )
    return folder


@dataclass(frozen=True)
class Reference:
    """A head as its authors' papers have it: float32, no cache, one sequence, nothing fused.

    ``tensors`` by their published names; what is not among them is the target's.
    """

    tensors: Tensors
    config: Mapping[str, Any]
    target: Path

    def __call__(self, tokens: Sequence[int], states: States) -> tuple[Tensor, Tensor]:
        """``tokens [n]`` follow ``states [n, hidden]``: logits and the next states."""
        w = {name.replace("midlayer.", "layers.0."): one for name, one in self._tensors().items()}
        given, embedded = torch.from_numpy(states), w["embed_tokens.weight"][list(tokens)]
        if "layers.0.hidden_norm.weight" in w:
            normal = self._norm(w["layers.0.hidden_norm.weight"], given)
            first = self._norm(w["layers.0.input_layernorm.weight"], embedded)
            h = normal if self.config.get("norm_before_residual") else given
            seen = torch.cat([first, normal], dim=-1)
        else:
            h = seen = self._linear(w, "fc", torch.cat([embedded, given], dim=-1))
            if "layers.0.input_layernorm.weight" in w:
                seen = self._norm(w["layers.0.input_layernorm.weight"], h)
        h = h + self._attention(w, seen)
        x = self._norm(w["layers.0.post_attention_layernorm.weight"], h)
        up = self._linear(w, "layers.0.mlp.up_proj", x)
        gated = functional.silu(self._linear(w, "layers.0.mlp.gate_proj", x)) * up
        h = h + self._linear(w, "layers.0.mlp.down_proj", gated)
        last = self._norm(w["norm.weight"], h) if "norm.weight" in w else h
        return last @ w["lm_head.weight"].T, h

    def fuse(self, features: Features) -> States:
        """EAGLE-3's."""
        whole = (features.astype(np.uint32) << 16).view(np.float32)
        found: States = self._linear(self.tensors, "fc", torch.from_numpy(whole)).numpy()
        return found

    def _tensors(self) -> Tensors:
        target = load_file(self.target / "model.safetensors")
        shared = {
            "embed_tokens.weight": target["model.embed_tokens.weight"],
            "lm_head.weight": target["lm_head.weight"],
        }
        return {**shared, **self.tensors}

    def _attention(self, w: Tensors, x: Tensor) -> Tensor:
        q, k, v = (
            self._linear(w, f"layers.0.self_attn.{name}_proj", x)
            .view(len(x), -1, DIM)
            .transpose(0, 1)
            for name in "qkv"
        )
        angles = torch.arange(len(x))[:, None] * self.config["rope_theta"] ** (
            -torch.arange(0, DIM, 2) / DIM
        )
        q, k = (turned(part, angles) for part in (q, k))
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 0) for part in (k, v))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self._linear(
            w, "layers.0.self_attn.o_proj", found.transpose(0, 1).reshape(len(x), -1)
        )

    def _norm(self, weight: Tensor, x: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.config["rms_norm_eps"])

    def _linear(self, w: Tensors, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """``x [heads, n, DIM]``: halves turn against each other."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def random_states(count: int, seed: int) -> States:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (count, HIDDEN)).astype(np.float32)


def random_features(count: int, seed: int, width: int = len(TAPS) * HIDDEN) -> Features:
    bits = np.random.default_rng(seed).normal(0, 1, (count, width)).astype(np.float32)
    return (bits.view(np.uint32) >> 16).astype(np.uint16)
