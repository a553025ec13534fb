"""Which architectures the engine can run: those whose state rolls back by length alone."""

from __future__ import annotations

from typing import Any

from starsd.errors import UnsupportedModelError

_ATTENTION_LAYERS = frozenset({"full_attention", "attention", "sliding_attention"})


def check_supported(config: Any, model_class: Any, max_length: int) -> None:
    """``config`` is the text config of a transformers model, ``model_class`` its class.

    Raises:
        UnsupportedModelError: names the architecture and what about it cannot be served.
    """
    _check_class(config, model_class)
    _check_layers(config)
    _check_window(config, max_length)
    _check_rope(config, max_length)


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
        raise refusal(config, "recurrent state cannot be rolled back")
    if not getattr(model_class, "_supports_attention_backend", False):
        raise refusal(config, "transformers offers no replaceable attention for it")


def _check_layers(config: Any) -> None:
    """Recurrent, convolutional, linear or chunked layers keep state that a length cannot undo."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if strange := sorted(str(kind) for kind in kinds - _ATTENTION_LAYERS):
        raise refusal(config, f"layers of type {', '.join(strange)} cannot be rolled back")


def _check_window(config: Any, max_length: int) -> None:
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    slides = kinds is None or "sliding_attention" in kinds
    if slides and window is not None and max_length > window:
        raise refusal(
            config,
            f"max_length {max_length} exceeds its sliding window; "
            f"set STARSD_MAX_LENGTH to {window} or less",
        )


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
