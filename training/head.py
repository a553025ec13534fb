"""An EAGLE-3 draft head in torch, for training: one decoder layer over fused target features.

Li et al. 2025, "EAGLE-3: Scaling up inference acceleration of large language models via
training-time test". Parameter names are those of the published checkpoints. It computes for chains
from all positions at once what ``starsd.engine.eagle.modules`` does on a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaMLP

from starsd.engine.decoder import Rope
from starsd.engine.native.architecture import HeadArchitecture
from starsd.engine.native.rope import rope_tables
from training.plan import WINDOW
from training.student import Student

WRITTEN = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "rms_norm_eps",
    "max_position_embeddings",
    "vocab_size",
    "draft_vocab_size",
)
"""Of an architecture into config.json."""


class RmsNorm(nn.RMSNorm):
    """In its input's precision: the fused kernel takes no mixture."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Reads the token's embedding and its feature side by side, both normalised."""

    def __init__(self, of: HeadArchitecture) -> None:
        super().__init__()
        wide, narrow = (of.head_dim * n for n in (of.num_attention_heads, of.num_key_value_heads))
        self._head_dim = of.head_dim
        self._share = of.num_attention_heads // of.num_key_value_heads
        self.q_proj = nn.Linear(of.attention_inputs, wide, bias=False)
        self.k_proj = nn.Linear(of.attention_inputs, narrow, bias=False)
        self.v_proj = nn.Linear(of.attention_inputs, narrow, bias=False)
        self.o_proj = nn.Linear(wide, of.hidden_size, bias=False)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """``x [b, t, 2 * hidden]`` to queries, keys, values ``[b, heads, t, head_dim]``."""
        query, key, value = (
            part(x).unflatten(-1, (-1, self._head_dim))
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (rope(part).to(part.dtype).transpose(1, 2) for part in (query, key))
        key, value = (
            part.repeat_interleave(self._share, 1) for part in (key, value.transpose(1, 2))
        )
        return query, key, value


class Layer(nn.Module):
    def __init__(self, of: HeadArchitecture) -> None:
        super().__init__()
        size, eps = of.hidden_size, of.rms_norm_eps
        self.input_layernorm = RmsNorm(size, eps)
        self.hidden_norm = RmsNorm(size, eps)
        self.self_attn = Attention(of)
        self.post_attention_layernorm = RmsNorm(size, eps)
        self.mlp = LlamaMLP(of)  # type: ignore[no-untyped-call]


@dataclass
class Chains:
    """What one chain of self-fed steps from each position has seen: keys and values of true
    features, and of each step so far ``[b, heads, t, head_dim]``; ``hidden [b, 1, t, t]`` masks
    with -inf."""

    keys: list[Tensor]
    values: list[Tensor]
    hidden: Tensor

    def attend(self, query: Tensor) -> Tensor:
        """``[b, heads, t, head_dim]``: each query sees the true keys up to its own position and
        the keys of its own chain."""
        scale = query.shape[-1] ** -0.5
        true = (query @ self.keys[0].transpose(-1, -2)) * scale + self.hidden
        own = [(query * key).sum(-1, keepdim=True) * scale for key in self.keys[1:]]
        weights = torch.cat([true, *own], dim=-1).float().softmax(-1).to(query.dtype)
        length = true.shape[-1]
        found = weights[..., :length] @ self.values[0]
        for step, value in enumerate(self.values[1:]):
            found = found + weights[..., length + step : length + step + 1] * value
        return found


class EagleHead(Student):
    """``taps``: the target's hidden states that come in, numbered as in ``Runner.tap``. The
    embedding is the target's own and is not trained."""

    embedding: Tensor
    rope_cos: Tensor
    rope_sin: Tensor

    def __init__(
        self,
        of: HeadArchitecture,
        taps: Sequence[int],
        embedding: Tensor,
        draft_ids: Tensor,
        steps: int = 3,
    ) -> None:
        super().__init__()
        self.of = of
        self.taps = tuple(taps)
        self.steps = steps
        self.fc = nn.Linear(of.features, of.hidden_size, bias=False)
        self.midlayer = Layer(of)
        self.norm = RmsNorm(of.hidden_size, of.rms_norm_eps)
        self.lm_head = nn.Linear(of.hidden_size, len(draft_ids), bias=False)
        rope = Rope.of(*map(torch.from_numpy, rope_tables(of.rope_parameters, of.head_dim, WINDOW)))
        fixed = {"rope_cos": rope.cos, "rope_sin": rope.sin}
        for name, one in {"embedding": embedding, "draft_ids": draft_ids, **fixed}.items():
            self.register_buffer(name, one, persistent=False)

    @property
    def head(self) -> Tensor:
        return self.lm_head.weight

    def step(
        self, chains: Chains, tokens: Tensor, feature: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One self-fed step of every chain.

        ``tokens [b, t]`` follow the positions of ``feature [b, t, hidden]``. Returns the next
        feature, and what ``lm_head`` reads of it, both like ``feature``.
        """
        layer = self.midlayer
        embedded = functional.embedding(tokens, self.embedding)
        both = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(feature)], dim=-1)
        rope = Rope(self.rope_cos, self.rope_sin).at(positions)
        query, key, value = layer.self_attn.project(both, rope)
        chains.keys.append(key)
        chains.values.append(value)
        found = chains.attend(query).transpose(1, 2).flatten(2)
        x = feature + layer.self_attn.o_proj(found)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x, self.norm(x)

    def drafted(self, features: Tensor, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """Each chain begins with a true feature and goes on with its own (training-time test)."""
        feature, follow = self.fc(features[:, :-2]), tokens[:, 1:-1]
        chains = Chains([], [], causal(lengths - 2, follow.shape[1]))
        found = []
        for step in range(self.steps):
            count = follow.shape[1] - step
            places = torch.arange(step, follow.shape[1], device=tokens.device)
            feature, state = self.step(
                _cut(chains, count), follow[:, step:], feature[:, :count], places
            )
            found.append(state)
        return found

    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """EAGLE-3's: ``d2t`` is the target's id less the draft's, ``t2d`` marks what is in."""
        weights = {name: weight.to(torch.bfloat16) for name, weight in self.state_dict().items()}
        known = torch.zeros(self.of.vocab_size, dtype=torch.bool)
        known[self.draft_ids.cpu()] = True
        weights["d2t"] = self.draft_ids.cpu() - torch.arange(len(self.draft_ids))
        weights["t2d"] = known
        return weights, head_config(self.of, self.taps)


def head_config(of: HeadArchitecture, taps: Sequence[int]) -> dict[str, Any]:
    """``config.json``, as ``starsd.engine.eagle.checkpoint`` and vLLM read it."""
    rope = of.rope_parameters
    scaled = {} if rope["rope_type"] == "default" else {"rope_scaling": dict(rope)}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "dtype": "bfloat16",
        **{name: getattr(of, name) for name in WRITTEN},
        "rope_theta": rope["rope_theta"],
        **scaled,
        "tie_word_embeddings": False,
        "eagle_aux_hidden_state_layer_ids": list(taps),  # what goes into a layer (vLLM)
    }


def _cut(chains: Chains, count: int) -> Chains:
    """Chains from the first ``count`` positions, in place."""
    chains.keys[1:] = [key[:, :, :count] for key in chains.keys[1:]]
    chains.values[1:] = [value[:, :, :count] for value in chains.values[1:]]
    chains.hidden = chains.hidden[:, :, :count]
    return chains


def causal(lengths: Tensor, size: int) -> Tensor:
    """``[b, 1, size, size]``: -inf where a query may not look; padding is never looked at."""
    places = torch.arange(size, device=lengths.device)
    seen = (places[:, None] >= places) & (places < lengths[:, None, None])
    seen = seen | torch.eye(size, dtype=torch.bool, device=lengths.device)
    return torch.zeros(seen.shape, device=lengths.device).masked_fill(~seen, -torch.inf)[:, None]
