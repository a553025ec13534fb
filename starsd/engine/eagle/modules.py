"""What EAGLE-1 and EAGLE-3 compute, in torch."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from starsd.engine.batch import Batch
from starsd.engine.decoder import Heads, Layer, Norm, Rope
from starsd.engine.eagle.checkpoint import Head
from starsd.engine.eagle.weights import HeadWeights
from starsd.engine.invariant import ScoreForm
from starsd.engine.linears import Linear, Pack
from starsd.engine.native.architecture import Architecture, HeadArchitecture

_LAYER = "layers.0"


class Eagle(Protocol):
    """``tokens [T]`` come with ``states [T, hidden]``."""

    def fuse(self, features: Tensor) -> Tensor:
        """``[n, features]`` to ``[n, hidden]``."""

    def step(self, tokens: Tensor, states: Tensor, rope: Rope, batch: Batch) -> Tensor:
        """The head's guess of the next states ``[T, hidden]``."""

    def logits(self, states: Tensor) -> Tensor:
        """``[n, draft vocabulary]``."""


class Parts:
    """A head's weights on a device."""

    def __init__(
        self, weights: HeadWeights, pack: Pack, device: torch.device, dtype: torch.dtype, eps: float
    ) -> None:
        self._weights = weights
        self._pack, self._device, self._dtype = pack, device, dtype
        self._eps = eps

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self._weights.whole(name)).to(self._device, self._dtype)

    def linear(self, *names: str) -> Linear:
        """One for several that share their input."""
        weight = torch.cat([self.tensor(f"{name}.weight") for name in names])
        biased = self._weights.shape(f"{names[0]}.bias") is not None
        bias = torch.cat([self.tensor(f"{name}.bias") for name in names]) if biased else None
        return self._pack(weight, bias)

    def norm(self, name: str) -> Norm:
        return Norm(self.tensor(f"{name}.weight"), self._eps)

    def norm_or_none(self, name: str) -> Norm | None:
        there = self._weights.shape(f"{name}.weight") is not None
        return self.norm(name) if there else None

    def layer(self, of: Architecture) -> Layer:
        attention, mlp = f"{_LAYER}.self_attn", f"{_LAYER}.mlp"
        heads, kv_heads, dim = of.num_attention_heads, of.num_key_value_heads, of.head_dim
        return Layer(
            index=0,
            heads=Heads(heads, kv_heads, dim, ScoreForm(dim**-0.5)),
            before_attention=self.norm_or_none(f"{_LAYER}.input_layernorm") or as_it_is,
            qkv=self.linear(*(f"{attention}.{part}_proj" for part in "qkv")),
            q_norm=self.norm_or_none(f"{attention}.q_norm"),
            k_norm=self.norm_or_none(f"{attention}.k_norm"),
            out=self.linear(f"{attention}.o_proj"),
            before_mlp=self.norm(f"{_LAYER}.post_attention_layernorm"),
            gate_up=self.linear(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            act=functional.silu,
            down=self.linear(f"{mlp}.down_proj"),
        )


class Eagle3:
    """``fc`` fuses features; the layer reads embedding and state, both normalised."""

    def __init__(self, of: HeadArchitecture, parts: Parts) -> None:
        self._embedding = parts.tensor("embed_tokens.weight")
        self.fuse = parts.linear("fc")
        self._state_norm = parts.norm(f"{_LAYER}.hidden_norm")
        self._layer = parts.layer(of)
        self._norm = parts.norm("norm")
        self._head = parts.linear("lm_head")
        self._norm_before_residual = of.norm_before_residual

    def step(self, tokens: Tensor, states: Tensor, rope: Rope, batch: Batch) -> Tensor:
        """See ``Eagle.step``."""
        embedded = self._layer.before_attention(functional.embedding(tokens, self._embedding))
        normal = self._state_norm(states)
        kept = normal if self._norm_before_residual else states
        return self._layer.onward(kept, torch.cat([embedded, normal], dim=-1), rope, batch)

    def logits(self, states: Tensor) -> Tensor:
        """See ``Eagle.logits``."""
        return self._head(self._norm(states))


class Eagle1:
    """``fc`` mixes embedding and state, which is the target's last one, as the layer's guess of
    the next is; so the target's head reads it as it is. The layer has no first norm in the
    published checkpoints."""

    def __init__(self, of: Architecture, parts: Parts) -> None:
        self._embedding = parts.tensor("embed_tokens.weight")
        self.fuse = as_it_is
        self._mix = parts.linear("fc")
        self._layer = parts.layer(of)
        self.logits = parts.linear("lm_head")

    def step(self, tokens: Tensor, states: Tensor, rope: Rope, batch: Batch) -> Tensor:
        """See ``Eagle.step``."""
        embedded = functional.embedding(tokens, self._embedding)
        return self._layer(self._mix(torch.cat([embedded, states], dim=-1)), rope, batch)


def make_eagle(head: Head, parts: Parts) -> Eagle:
    if isinstance(head.of, HeadArchitecture):
        return Eagle3(head.of, parts)
    return Eagle1(head.of, parts)


def as_it_is(x: Tensor) -> Tensor:
    return x
