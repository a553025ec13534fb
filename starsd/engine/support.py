"""Which architectures the engine can run, and what it must know of them."""

from __future__ import annotations

from typing import Any

from starsd.errors import UnsupportedModelError

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""``model_type`` of the models that our own forwards compute, in torch and in C."""

RECURRENT = frozenset(
    {
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "kimi_linear",
        "lfm2",
        "mamba",
        "mamba2",
        "minimax",
        "olmo_hybrid",
        "qwen3_5_text",
        "qwen3_next",
        "rwkv",
    }
)
"""``model_type`` of the models served by ``RecurrentRunner``: those whose state in transformers
tests have shown to equal a forward over the whole text."""

_ATTENTION_LAYERS = frozenset({"full_attention", "attention", "sliding_attention"})


_SERVED = (
    "besides attention, full or sliding, the engine serves the recurrent state of "
    f"{', '.join(sorted(RECURRENT))}: tests have shown that of transformers to be right"
)


def check_supported(config: Any, model_class: Any, max_length: int) -> None:
    """``config`` is the text config of a transformers model, ``model_class`` its class.

    Raises:
        UnsupportedModelError: names the architecture and what about it cannot be served.
    """
    if config.model_type not in RECURRENT:
        _check_class(config, model_class)
        _check_layers(config)
    _check_rope(config, max_length)


def layer_windows(config: Any) -> tuple[int | None, ...]:
    """Per layer, how many positions it sees, the token's own included; None: all of them."""
    window: int | None = getattr(config, "sliding_window", None)
    # where the class has no such field, its model does not read what the file says
    kinds = getattr(config, "layer_types", None) if hasattr(type(config), "layer_types") else None
    if kinds is None:
        return (window,) * int(config.num_hidden_layers)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def check_compiled(config: Any, max_length: int) -> None:
    """For compiled code, which knows full attention only.

    Raises:
        UnsupportedModelError: another kind of layer, or a window shorter than ``max_length``.
    """
    _check_layers(config)
    windows = [window for window in layer_windows(config) if window is not None]
    if windows and min(windows) < max_length:
        raise refusal(
            config,
            f"compiled code has no sliding windows; with this one set STARSD_MAX_LENGTH to "
            f"{min(windows)} or less, not {max_length}",
        )


def context_length(config: Any, wanted: int) -> int:
    """Positions per slot: the setting, capped by what the model was made for."""
    own = getattr(config, "max_position_embeddings", None)
    return min(wanted, own) if own else wanted


def refusal(config: Any, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"model type {config.model_type!r}: {reason}")


def _check_class(config: Any, model_class: Any) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise refusal(config, "encoder-decoder models are not served")
    if getattr(model_class, "_is_stateful", False):
        raise refusal(config, f"recurrent; {_SERVED}")
    if not getattr(model_class, "_supports_attention_backend", False):
        raise refusal(config, "transformers offers no replaceable attention for it")


def _check_layers(config: Any) -> None:
    """Our attention knows two kinds of layers; any other keeps more, or sees less."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if strange := sorted(str(kind) for kind in kinds - _ATTENTION_LAYERS):
        raise refusal(config, f"layers of type {', '.join(strange)}; {_SERVED}")


def _check_rope(config: Any, max_length: int) -> None:
    """``longrope`` turns all keys anew when one row of a batch gets long."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "longrope":
        return
    original = int(rope.get("original_max_position_embeddings", max_length))
    if max_length > original:
        raise refusal(
            config,
            f"longrope past {original} positions re-rotates cached keys; "
            f"set STARSD_MAX_LENGTH to {original} or less",
        )
