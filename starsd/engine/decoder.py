"""The forward of Llama-like decoders, in as few tensor operations as it takes.

transformers spends more than half of a small step outside the matrices. Models of ``FAMILIES``
are therefore taken apart once, their matrices fused and packed, and computed here; all others run
through their own forward. Both write the same cache and obey the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from starsd.engine.attention import attend
from starsd.engine.batch import Batch, Packed
from starsd.engine.invariant import ScoreForm
from starsd.engine.linears import Linear, Pack
from starsd.engine.rows import check_taps
from starsd.engine.support import FAMILIES


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
    form: ScoreForm


@dataclass(frozen=True)
class Layer:
    """One pre-norm decoder layer; ``q_norm`` and ``k_norm`` where the model has them (Qwen3)."""

    index: int
    heads: Heads
    before_attention: Callable[[Tensor], Tensor]
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
        return self.onward(h, self.before_attention(h), rope, batch)

    def onward(self, h: Tensor, seen: Tensor, rope: Rope, batch: Batch) -> Tensor:
        """The same, where attention is over ``seen [T, inputs]``."""
        h = h + self.out(self._attention(self.qkv(seen), rope, batch))
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
        found = attend(self.index, turned[:, :heads], key, value, batch, self.heads.form)
        return found.reshape(len(fused), -1)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding at the positions of one forward: ``cos, sin [T, 1, dim]``, where the first
    half of ``sin`` is negated so that rotating needs no negation of its own."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, cos: Tensor, sin: Tensor) -> Rope:
        """From the turn of each pair of dimensions at each position, ``[T, dim / 2]``."""
        cos, sin = cos[:, None], sin[:, None]
        return cls(torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))

    def at(self, positions: Tensor) -> Rope:
        """At some of these, ``[t]``."""
        return Rope(self.cos[positions], self.sin[positions])

    def __call__(self, x: Tensor) -> Tensor:
        """``x [T, heads, dim]``, halves of the last dimension paired."""
        return torch.addcmul(x * self.cos, x.roll(x.shape[-1] // 2, -1), self.sin)


class Outcome(NamedTuple):
    """``logits [wanted, vocabulary]``; ``features [T, taps * hidden]`` of all tokens."""

    logits: Tensor
    features: Tensor


class Decoder:
    """A causal language model taken apart; called like the model itself, by the runner only."""

    def __init__(self, model: Any, pack: Pack, max_length: int) -> None:
        """Takes over ``model``'s weights layer by layer, freeing its own copies."""
        base = model.model
        self._embedding: Tensor = base.embed_tokens.weight.data
        self._width = self._embedding.shape[1]
        self._head = pack(model.lm_head.weight.data, _bias(model.lm_head))
        self._layers = [_layer(index, layer, pack) for index, layer in enumerate(base.layers)]
        self._norm = _norm(base.norm)
        self._rope = _rope(base.rotary_emb, self._embedding, max_length)
        self.taps: tuple[int, ...] = ()

    def tap(self, layers: Sequence[int]) -> None:
        """See ``Runner.tap``."""
        check_taps(layers, len(self._layers))
        self.taps = tuple(layers)

    def __call__(self, packed: Packed) -> Outcome:
        states = self.states(packed)
        return Outcome(self.head(states, packed.wanted), self.features(states))

    def states(self, packed: Packed) -> Tensor:
        """What the last layer makes of each token, and behind it what is tapped:
        ``[T, (1 + taps) * hidden]``. Can be recorded: waits for no value, and all shapes follow
        from those of ``packed``."""
        rope = self._rope.at(packed.positions[0])
        h = functional.embedding(packed.ids[0], self._embedding)
        passed = [h]
        for layer in self._layers:
            h = layer(h, rope, packed.batch)
            passed += [h] if self.taps else []
        if not self.taps:
            return h
        passed[-1] = self._norm(h)
        return torch.cat([h, *(passed[index] for index in self.taps)], dim=-1)

    def head(self, states: Tensor, wanted: Tensor) -> Tensor:
        """Logits ``[wanted, vocabulary]`` of some tokens."""
        hidden = states[:, : self._width]
        return self._head(self._norm(hidden.index_select(0, wanted)))

    def features(self, states: Tensor) -> Tensor:
        """``[T, taps * hidden]``."""
        return states[:, self._width :]


def _rope(rotary: Any, like: Tensor, max_length: int) -> Rope:
    positions = torch.arange(max_length, device=like.device)[None]
    cos, sin = (table[0].chunk(2, dim=-1)[0] for table in rotary(like, positions))
    return Rope.of(cos, sin)


def _layer(index: int, layer: Any, pack: Pack) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    dim = attention.head_dim
    heads = attention.q_proj.out_features // dim
    kv_heads = attention.k_proj.out_features // dim
    return Layer(
        index=index,
        heads=Heads(heads, kv_heads, dim, ScoreForm(attention.scaling)),
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
