"""The forward of Llama-like decoders, in as few tensor operations as it takes.

transformers spends more than half of a small step outside the matrices. Models of ``FAMILIES``
are therefore taken apart once, their matrices fused and packed, and computed here; all others run
through their own forward. Both write the same cache and obey the same batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from starsd.engine.attention import attend
from starsd.engine.batch import Batch, Packed
from starsd.engine.linears import Linear, Pack

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""``model_type`` of the configurations whose layers are computed here."""


def is_family(model: Any) -> bool:
    """Whether ``Decoder`` computes this transformers model."""
    return model.config.model_type in FAMILIES


@dataclass(frozen=True)
class Norm:
    """Root mean square normalisation of the last dimension."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True)
class Heads:
    """How a fused product ``[T, (heads + 2 kv_heads) * dim]`` divides."""

    heads: int
    kv_heads: int
    dim: int
    scale: float


@dataclass(frozen=True)
class Layer:
    """One pre-norm decoder layer; ``q_norm`` and ``k_norm`` where the model has them (Qwen3)."""

    index: int
    heads: Heads
    before_attention: Norm
    qkv: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    out: Linear
    before_mlp: Norm
    gate_up: Linear
    act: Callable[[Tensor], Tensor]
    down: Linear

    def __call__(self, h: Tensor, rope: Rope, batch: Batch) -> Tensor:
        """``h [T, hidden]`` through attention and MLP, both residual."""
        h = h + self.out(self._attention(self.qkv(self.before_attention(h)), rope, batch))
        gate, up = self.gate_up(self.before_mlp(h)).chunk(2, dim=-1)
        return h + self.down(self.act(gate) * up)

    def _attention(self, fused: Tensor, rope: Rope, batch: Batch) -> Tensor:
        heads, kv_heads = self.heads.heads, self.heads.kv_heads
        parts = fused.view(len(fused), heads + 2 * kv_heads, self.heads.dim)
        if self.q_norm is not None and self.k_norm is not None:
            query, key, value = torch.split(parts, [heads, kv_heads, kv_heads], dim=1)
            parts = torch.cat((self.q_norm(query), self.k_norm(key), value), dim=1)
        turned = rope(parts[:, : heads + kv_heads])
        key, value = turned[:, heads:], parts[:, heads + kv_heads :]
        found = attend(self.index, turned[:, :heads], key, value, batch, self.heads.scale)
        return found.reshape(len(fused), -1)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding at the positions of one forward: ``cos, sin [T, 1, dim]``, where the first
    half of ``sin`` is negated so that rotating needs no negation of its own."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """``x [T, heads, dim]``, halves of the last dimension paired."""
        return torch.addcmul(x * self.cos, x.roll(x.shape[-1] // 2, -1), self.sin)


class Decoder:
    """A causal language model taken apart; called like the model itself, by the runner only."""

    def __init__(self, model: Any, pack: Pack, max_length: int) -> None:
        """Takes over ``model``'s weights layer by layer, freeing its own copies."""
        base = model.model
        self._embedding: Tensor = base.embed_tokens.weight.data
        self._head = pack(model.lm_head.weight.data, _bias(model.lm_head))
        self._layers = [_layer(index, layer, pack) for index, layer in enumerate(base.layers)]
        self._norm = _norm(base.norm)
        self._cos, self._sin = _rope_tables(base.rotary_emb, self._embedding, max_length)

    def __call__(self, packed: Packed) -> Tensor:
        """Logits of the wanted tokens: ``[wanted, vocabulary]``."""
        positions = packed.positions[0]
        rope = Rope(self._cos[positions], self._sin[positions])
        h = functional.embedding(packed.ids[0], self._embedding)
        for layer in self._layers:
            h = layer(h, rope, packed.batch)
        return self._head(self._norm(h.index_select(0, packed.wanted)))


def _rope_tables(rotary: Any, like: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    positions = torch.arange(max_length, device=like.device)[None]
    cos, sin = rotary(like, positions)
    first, second = sin[0].chunk(2, dim=-1)
    return cos[0][:, None], torch.cat((-first, second), dim=-1)[:, None]


def _layer(index: int, layer: Any, pack: Pack) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    dim = attention.head_dim
    heads = attention.q_proj.out_features // dim
    kv_heads = attention.k_proj.out_features // dim
    return Layer(
        index=index,
        heads=Heads(heads, kv_heads, dim, attention.scaling),
        before_attention=_norm(layer.input_layernorm),
        qkv=_fused(pack, attention.q_proj, attention.k_proj, attention.v_proj),
        q_norm=_norm_or_none(attention, "q_norm"),
        k_norm=_norm_or_none(attention, "k_norm"),
        out=_fused(pack, attention.o_proj),
        before_mlp=_norm(layer.post_attention_layernorm),
        gate_up=_fused(pack, mlp.gate_proj, mlp.up_proj),
        act=mlp.act_fn,
        down=_fused(pack, mlp.down_proj),
    )


def _fused(pack: Pack, *parts: Any) -> Linear:
    """One layer for several that share their input; theirs are freed."""
    weights = [part.weight.data for part in parts]
    biases = [_bias(part) for part in parts]
    bias = None if biases[0] is None else torch.cat([one for one in biases if one is not None])
    for part in parts:
        part.weight = part.bias = None
    return pack(weights[0] if len(weights) == 1 else torch.cat(weights), bias)


def _bias(part: Any) -> Tensor | None:
    return None if part.bias is None else part.bias.data


def _norm(module: Any) -> Norm:
    return Norm(module.weight.data, module.variance_epsilon)


def _norm_or_none(attention: Any, name: str) -> Norm | None:
    module = getattr(attention, name, None)
    return None if module is None else _norm(module)
