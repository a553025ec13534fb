"""The draft head in training: chains of self-fed steps against one step after another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from starsd.engine.native.architecture import HeadArchitecture
from training.head import EagleHead

SHAPE = HeadArchitecture(
    model_type="llama",
    num_hidden_layers=1,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=50,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    hidden_act="silu",
    tie_word_embeddings=False,
    qkv_bias=False,
    out_bias=False,
    mlp_bias=False,
    qk_norms=False,
    rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    sliding_window=None,
    draft_vocab_size=25,
    features=64,
    fc_bias=False,
    norm_before_residual=False,
)
IDS = torch.arange(0, 50, 2)
STEPS = 3


@pytest.fixture
def head() -> EagleHead:
    torch.manual_seed(5)
    made = EagleHead(SHAPE, (1, 3), torch.randn(50, 32), IDS, STEPS)
    for norm in (made.norm, made.midlayer.hidden_norm, made.midlayer.input_layernorm):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    return made


def norm(x: Tensor, by: Any) -> Tensor:
    weight: Tensor = by.weight
    return x * (x.pow(2).mean(-1, keepdim=True) + SHAPE.rms_norm_eps).rsqrt() * weight


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding in Llama's layout (halves turn against each other); ``x [h, t, d]``."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 1e4 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ],
        dim=-1,
    )


def one_after_another(
    head: EagleHead, features: Tensor, tokens: Tensor, start: int
) -> list[Tensor]:
    """What the chain that begins after the true feature ``start`` reads off, by the plain formulas:
    the whole text through one layer, anew for each step. ``features [t, taps * hidden]``."""
    layer, attn = head.midlayer, head.midlayer.self_attn
    states = list(head.fc(features[: start + 1]))
    found = []
    for step in range(STEPS):
        state = torch.stack(states)
        embedded = head.embedding[tokens[1 : len(states) + 1]]
        both = torch.cat(
            [norm(embedded, layer.input_layernorm), norm(state, layer.hidden_norm)], dim=-1
        )
        places = torch.arange(len(states))
        query, key, value = (
            part(both).view(len(states), -1, 8).transpose(0, 1)
            for part in (attn.q_proj, attn.k_proj, attn.v_proj)
        )
        query, key = rotated(query, places), rotated(key, places)
        key, value = key.repeat_interleave(2, 0), value.repeat_interleave(2, 0)
        weights = (query[:, -1:] @ key.transpose(1, 2) * 8**-0.5).softmax(-1)
        x = states[-1] + attn.o_proj((weights @ value).flatten())
        y = norm(x, layer.post_attention_layernorm)
        mlp = layer.mlp
        x = x + mlp.down_proj(functional.silu(mlp.gate_proj(y)) * mlp.up_proj(y))
        found.append(norm(x, head.norm))
        states.append(x)
        assert step < STEPS
    return found


@torch.no_grad()
def test_chains_of_all_places_at_once_are_the_chains_one_by_one(head: EagleHead) -> None:
    features, tokens = torch.randn(2, 20, 64), torch.randint(50, (2, 20))
    lengths = torch.tensor([20, 13])
    drafted = head.drafted(features, tokens, lengths)
    assert [one.shape for one in drafted] == [(2, 18, 32), (2, 17, 32), (2, 16, 32)]
    for row, length in enumerate(lengths.tolist()):
        for start in range(length - 2 - STEPS):
            expected = one_after_another(head, features[row], tokens[row], start)
            for step, one in enumerate(expected):
                torch.testing.assert_close(drafted[step][row, start], one, rtol=1e-4, atol=1e-5)


def test_checkpoint_is_eagle_3s(head: EagleHead) -> None:
    weights, config = head.checkpoint()
    assert set(weights) == {
        "fc.weight",
        "norm.weight",
        "lm_head.weight",
        "d2t",
        "t2d",
        *(f"midlayer.self_attn.{one}_proj.weight" for one in "qkvo"),
        *(f"midlayer.mlp.{one}_proj.weight" for one in ("gate", "up", "down")),
        *(
            f"midlayer.{one}.weight"
            for one in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        ),
    }
    assert torch.equal(torch.arange(25) + weights["d2t"], IDS)
    assert torch.equal(weights["t2d"].nonzero().flatten(), IDS)
    assert config["draft_vocab_size"] == 25
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 3]
