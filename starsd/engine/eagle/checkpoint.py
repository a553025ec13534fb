"""What a draft head's folder says: EAGLE-1 or EAGLE-3, its shapes, its taps, its vocabulary.

EAGLE-3 (Li et al. 2025, arXiv 2503.01840) has ``fc`` over several states of the target, a layer
that reads embedding and state, and a vocabulary of its own. EAGLE-1 (Li et al. 2024, arXiv
2401.15077) has ``fc`` over embedding and state, a plain layer, and the target's head. The layouts
are those of github.com/SafeAILab/EAGLE, of vLLM's speculators and of SGLang's SpecForge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from starsd.engine.checkpoint import weights_revision
from starsd.engine.eagle.weights import HeadWeights, stored_in
from starsd.engine.native.architecture import Architecture, HeadArchitecture, described
from starsd.engine.native.plan import layer_products, plan
from starsd.engine.native.rope import KINDS
from starsd.engine.rows import check_taps
from starsd.errors import ConfigError

Config = Mapping[str, Any]
Ids = npt.NDArray[np.int64]
Shapes = Mapping[str, tuple[int, ...]]

_LAYER = "layers.0"
_TAPS = "eagle_aux_hidden_state_layer_ids"
_OURS = "starsd"
"""What our trainer says beside the rest."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Target:
    """What a head must know of its target."""

    revision: str
    layers: int
    hidden_size: int
    max_length: int


@dataclass(frozen=True)
class Head:
    """A checkpoint that has been checked. ``of`` is a ``HeadArchitecture`` if it is EAGLE-3."""

    of: Architecture
    weights: HeadWeights
    layers: tuple[int, ...]
    draft_ids: Ids
    revision: str
    target: Target


def is_head(folder: Path) -> bool:
    """Whether a checkpoint is a draft head rather than a language model. Raises ConfigError."""
    config = _read(folder)
    names = " ".join(map(str, config.get("architectures") or ()))
    if "eagle" in names.lower() or "eagle_config" in config or "draft_vocab_size" in config:
        return True
    return any(name.removeprefix("model.") == "fc.weight" for name in stored_in(folder))


def read_head(folder: Path, target_folder: Path) -> Head:
    """
    Raises:
        ConfigError: anything missing, misshapen, or made for another target.
    """
    config, target = _head_config(folder), read_target(target_folder)
    weights = HeadWeights(folder, target_folder)
    of = _architecture(folder, config, weights, target)
    layers = _layers(config, of, target)
    if isinstance(of, HeadArchitecture):
        of = replace(of, features=len(layers) * target.hidden_size)
    _check_shapes(folder, shapes_of(of), weights)
    _compare_revisions(folder, config, target)
    return Head(of, weights, layers, _draft_ids(of, weights), weights_revision(folder), target)


def read_target(folder: Path) -> Target:
    """Raises ConfigError."""
    config = _read(folder)
    config = config.get("text_config") or config
    try:
        return Target(
            weights_revision(folder),
            int(config["num_hidden_layers"]),
            int(config["hidden_size"]),
            int(config["max_position_embeddings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"model in {folder}: a draft head needs its config.json's {error}") from (
            error
        )


def shapes_of(of: Architecture) -> Shapes:
    """Of all weights, by name."""
    if isinstance(of, HeadArchitecture):
        return {
            name: size for part in plan(of, 16, tied=False) for name, size in part.shapes().items()
        }
    hidden = of.hidden_size
    products = [product.shapes() for product in layer_products(of, 0, 16)]
    return {
        "embed_tokens.weight": (of.vocab_size, hidden),
        "fc.weight": (hidden, 2 * hidden),
        **{name: size for shapes in products for name, size in shapes.items()},
        f"{_LAYER}.post_attention_layernorm.weight": (hidden,),
        "lm_head.weight": (of.vocab_size, hidden),
    }


def _read(folder: Path) -> Config:
    file = folder / "config.json"
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: want a JSON object")
    return found


def _head_config(folder: Path) -> Config:
    """With what speculators describe apart put beside the rest."""
    config = _read(folder)
    inner = config.get("transformer_layer_config")
    return config if inner is None else {"norm_before_residual": True, **inner, **config}


def _architecture(
    folder: Path, config: Config, weights: HeadWeights, target: Target
) -> Architecture:
    """All published heads have Llama's layer; which biases it has, its weights say."""
    try:
        of = described({**config, "model_type": "llama"})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"draft head in {folder}: its config.json lacks {error}") from error
    if reasons := _refusals(config, of):
        raise ConfigError(f"draft head in {folder}: {', '.join(reasons)}")

    def has(name: str) -> bool:
        return weights.shape(f"{_LAYER}.{name}") is not None

    of = replace(
        of,
        qkv_bias=has("self_attn.q_proj.bias"),
        out_bias=has("self_attn.o_proj.bias"),
        mlp_bias=has("mlp.gate_proj.bias"),
        qk_norms=has("self_attn.q_norm.weight"),
        tie_word_embeddings=False,
        sliding_window=None,
        layer_types=None,
    )
    if not has("hidden_norm.weight"):
        return of
    return HeadArchitecture(
        **vars(of),
        draft_vocab_size=int(config.get("draft_vocab_size") or of.vocab_size),
        features=0,
        fc_bias=weights.shape("fc.bias") is not None,
        norm_before_residual=bool(config.get("norm_before_residual", False)),
    )


def _refusals(config: Config, of: Architecture) -> list[str]:
    """What no forward of ours computes."""
    kind = of.rope_parameters.get("rope_type")
    found = [
        (of.num_hidden_layers != 1, f"{of.num_hidden_layers} layers, want 1"),
        (of.hidden_act != "silu", f"activation {of.hidden_act!r}, want 'silu'"),
        (kind not in KINDS, f"rotary embedding {kind!r}, want {', '.join(KINDS)}"),
        (bool(config.get("norm_before_fc")), "norm_before_fc is not served"),
        (config.get("quantization_config") is not None, "quantised weights are not served"),
    ]
    return [text for refused, text in found if refused]


def _layers(config: Config, of: Architecture, target: Target) -> tuple[int, ...]:
    """Taps. Where a config names none, they are those of EAGLE-3's authors."""
    if not isinstance(of, HeadArchitecture):
        return (target.layers,)
    layers = _named(config)
    if layers is None:
        layers = (2, target.layers // 2, target.layers - 3)
    check_taps(layers, target.layers)
    return tuple(layers)


def _named(config: Config) -> Sequence[int] | None:
    """vLLM's key, at the top, counts what goes into a layer; SGLang's, inside ``eagle_config``,
    what comes out of it."""
    if layers := config.get(_TAPS):
        return tuple(layers)
    inner = (config.get("eagle_config") or {}).get(_TAPS)
    return tuple(layer + 1 for layer in inner) if inner else None


def _check_shapes(folder: Path, wanted: Shapes, weights: HeadWeights) -> None:
    faults = []
    for name, shape in wanted.items():
        found = weights.shape(name)
        if found != shape:
            there = "none" if found is None else f"{list(found)}"
            faults.append(f"{name.removeprefix('model.')} {list(shape)}, there is {there}")
    if faults:
        raise ConfigError(f"draft head in {folder}: want {'; '.join(faults[:5])}")


def _draft_ids(of: Architecture, weights: HeadWeights) -> Ids:
    """``d2t`` is what to add to a draft id; ``t2d`` marks the target's ids that have one."""
    count, vocab = of.output_size, of.vocab_size
    if count == vocab:
        return np.arange(vocab)
    offsets, marks = weights.wholes("d2t"), weights.wholes("t2d")
    if offsets is None and marks is None:
        raise ConfigError(f"a draft vocabulary of {count} needs d2t or t2d in its checkpoint")
    if marks is not None and marks.shape != (vocab,):
        raise ConfigError(f"t2d: want [{vocab}], there is {list(marks.shape)}")
    if offsets is not None and offsets.shape != (count,):
        raise ConfigError(f"d2t: want [{count}], there is {list(offsets.shape)}")
    marked = None if marks is None else np.flatnonzero(marks)
    ids = marked if offsets is None else np.arange(count) + offsets
    assert ids is not None
    if len(ids) != count or ids[0] < 0 or ids[-1] >= vocab or (np.diff(ids) <= 0).any():
        raise ConfigError(f"d2t, t2d: want {count} ascending ids below {vocab}")
    if marked is not None and not np.array_equal(ids, marked):
        raise ConfigError("d2t and t2d name different tokens")
    return ids


def _compare_revisions(folder: Path, config: Config, target: Target) -> None:
    """Another revision may have the same weights, and text is right whatever a head says."""
    trained = (config.get(_OURS) or {}).get("target_revision")
    if trained not in (None, target.revision):
        log.warning(
            "the draft head was trained for another revision of the target",
            head=str(folder),
            trained_for=trained,
            target=target.revision,
        )
