"""What config.json says of a decoder that decoder.c computes, read without transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starsd.engine.drafts import check_layers
from starsd.engine.native.rope import KINDS, rope_parameters, rope_tables
from starsd.engine.native.weights import GROUP, LANES
from starsd.engine.support import FAMILIES
from starsd.errors import UnsupportedModelError

_QWEN3_HEAD_DIM = 128
_MISTRAL_WINDOW = 4096
_QWEN_WINDOW, _QWEN_FULL_LAYERS = 4096, 28
"""What transformers assumes where a config says nothing."""

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """Named as in transformers' configurations, so that ``support`` reads it like one of them.

    ``qkv_bias``, ``out_bias``, ``mlp_bias``: linear layers that have one; ``qk_norms``: queries and
    keys are normalised (Qwen3).
    """

    model_type: str
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    hidden_act: str
    tie_word_embeddings: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norms: bool
    rope_parameters: Config
    sliding_window: int | None
    layer_types: tuple[str, ...] | None = None

    @property
    def attention_inputs(self) -> int:
        """Numbers that queries, keys and values of the first layer are made of."""
        return self.hidden_size

    @property
    def output_size(self) -> int:
        """Logits of a token."""
        return self.vocab_size

    def first(self, layers: int) -> Architecture:
        """Only the first ``layers``. Raises ConfigError if there are less."""
        check_layers(layers, self.num_hidden_layers)
        kinds = None if self.layer_types is None else self.layer_types[:layers]
        return replace(self, num_hidden_layers=layers, layer_types=kinds)


@dataclass(frozen=True, kw_only=True)
class HeadArchitecture(Architecture):
    """An EAGLE-3 draft head: one layer that reads a token's embedding beside a state.

    ``features`` numbers of the target's states are fused to a state; ``vocab_size`` is the
    target's. ``norm_before_residual``: what the layer adds to is the state normalised.
    """

    draft_vocab_size: int
    features: int
    fc_bias: bool
    norm_before_residual: bool

    @property
    def attention_inputs(self) -> int:
        return 2 * self.hidden_size

    @property
    def output_size(self) -> int:
        return self.draft_vocab_size


def read_architecture(folder: Path) -> Architecture:
    """Of the checkpoint in ``folder``.

    Raises:
        UnsupportedModelError: not a decoder that decoder.c knows, or not described in full.
    """
    try:
        return describe(json.loads((folder / "config.json").read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise UnsupportedModelError(f"{folder.name}: config.json: {error}") from error


def describe(config: Config) -> Architecture:
    """
    Raises:
        UnsupportedModelError: see ``read_architecture``.
    """
    kind = config.get("model_type")
    if kind not in FAMILIES or config.get("quantization_config") is not None:
        raise _unknown(kind, ["its kind of layers"])
    try:
        found = described(config)
        if reasons := faults(found):
            raise _unknown(kind, reasons)
        rope_tables(found.rope_parameters, found.head_dim, 1)
    except (KeyError, TypeError) as error:
        raise _unknown(kind, [f"a config.json that lacks {error}"]) from error
    return found


def _unknown(kind: object, faults: list[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the compiled decoder does not know model type {kind!r} with {', '.join(faults)}"
    )


def described(config: Config) -> Architecture:
    """What it says, whether decoder.c knows that or not. Raises KeyError, TypeError."""
    kind = config["model_type"]
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    asked_bias = kind in ("llama", "qwen3") and bool(config.get("attention_bias", False))
    window, kinds = _sliding(config)
    return Architecture(
        model_type=kind,
        num_hidden_layers=config["num_hidden_layers"],
        hidden_size=hidden,
        intermediate_size=config["intermediate_size"],
        num_attention_heads=heads,
        num_key_value_heads=_kv_heads(config),
        head_dim=_head_dim(config),
        vocab_size=config["vocab_size"],
        max_position_embeddings=config["max_position_embeddings"],
        rms_norm_eps=config["rms_norm_eps"],
        hidden_act=config.get("hidden_act", "silu"),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=asked_bias or kind == "qwen2",
        out_bias=asked_bias,
        mlp_bias=kind == "llama" and bool(config.get("mlp_bias", False)),
        qk_norms=kind == "qwen3",
        rope_parameters=rope_parameters(config),
        sliding_window=window,
        layer_types=kinds,
    )


def _kv_heads(config: Config) -> int:
    """Llamas older than grouped queries do not say."""
    name = "num_key_value_heads"
    given = config.get(name) if config["model_type"] == "llama" else config[name]
    return int(given or config["num_attention_heads"])


def _head_dim(config: Config) -> int:
    given = config.get("head_dim", _QWEN3_HEAD_DIM if config["model_type"] == "qwen3" else None)
    return int(given or config["hidden_size"] // config["num_attention_heads"])


def _sliding(config: Config) -> tuple[int | None, tuple[str, ...] | None]:
    """Window, and the kind of each layer where the model tells them apart."""
    kinds = config.get("layer_types")
    layers = None if kinds is None else tuple(kinds)
    if config["model_type"] == "mistral":
        return config.get("sliding_window", _MISTRAL_WINDOW), layers
    if config["model_type"] == "llama":
        return config.get("sliding_window"), layers
    slides = config.get("use_sliding_window", False)
    window = config.get("sliding_window", _QWEN_WINDOW) if slides else None
    return window, layers or _qwen_layers(config, window)


def _qwen_layers(config: Config, window: int | None) -> tuple[str, ...]:
    count = config["num_hidden_layers"]
    full = count if window is None else config.get("max_window_layers", _QWEN_FULL_LAYERS)
    return tuple("full_attention" if at < full else "sliding_attention" for at in range(count))


def faults(of: Architecture) -> list[str]:
    """What about it decoder.c does not know."""
    queries, keys = (of.head_dim * n for n in (of.num_attention_heads, of.num_key_value_heads))
    inputs = (of.hidden_size, queries, of.intermediate_size)
    rope = str(of.rope_parameters.get("rope_type"))
    found = [
        (of.head_dim % LANES, f"heads of {of.head_dim} dimensions"),
        (of.hidden_act != "silu", f"activation {of.hidden_act!r}"),
        (any(size % LANES for size in (*inputs, keys)), f"outputs that {LANES} divides not"),
        (any(size % GROUP for size in inputs), f"inputs that {GROUP} divides not"),
        (rope not in KINDS, f"rotary embedding {rope!r}"),
    ]
    return [text for fault, text in found if fault]
