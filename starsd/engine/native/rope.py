"""Rotary position embedding as transformers computes it, in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Parameters = Mapping[str, Any]

_THETA = 10_000.0
_WITH_ORIGINAL = ("llama3", "yarn")
"""Kinds that look at the context a model was first trained on."""


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """``rope_parameters`` of a config.json, also of one that says ``rope_theta, rope_scaling``.

    ``rope_type`` is "by layer" or "partial" for what no kind of ours is.
    """
    given = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    if any(isinstance(value, Mapping) for value in given.values()):
        return {"rope_type": "by layer"}
    kind = given.setdefault("rope_type", given.get("type", "default"))
    given.setdefault("rope_theta", config.get("rope_theta", _THETA))
    given.setdefault("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if given["partial_rotary_factor"] != 1:
        return {"rope_type": "partial"}
    if kind in _WITH_ORIGINAL:
        name = "original_max_position_embeddings"
        given[name] = config.get(name, given.get(name, config["max_position_embeddings"]))
    return given


def rope_tables(parameters: Parameters, dim: int, length: int) -> tuple[Floats, Floats]:
    """``cos, sin [length, dim / 2]``: each position's turn of each pair of dimensions."""
    inverse, stretch = KINDS[parameters["rope_type"]](parameters, dim)
    # float32 up to the angle, like transformers: models have learnt its rounding
    positions = np.arange(length, dtype=np.float32)[:, None]
    angles = (positions * inverse.astype(np.float32)).astype(np.float64)
    cos, sin = stretch * np.cos(angles), stretch * np.sin(angles)
    return cos.astype(np.float32), sin.astype(np.float32)


def _default(parameters: Parameters, dim: int) -> tuple[Doubles, float]:
    inverse: Doubles = parameters["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    return inverse, 1.0


def _linear(parameters: Parameters, dim: int) -> tuple[Doubles, float]:
    return _default(parameters, dim)[0] / parameters["factor"], 1.0


def _llama3(parameters: Parameters, dim: int) -> tuple[Doubles, float]:
    """Slow turns are slowed by ``factor``, fast ones are kept, those between are mixed."""
    inverse, _ = _default(parameters, dim)
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * inverse / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clip(0, 1)
    return inverse * (kept + (1 - kept) / parameters["factor"]), 1.0


def _yarn(parameters: Parameters, dim: int) -> tuple[Doubles, float]:
    """(Peng et al. 2023) Like ``_llama3``, mixed by dimension; angles are sharpened."""
    inverse, _ = _default(parameters, dim)
    factor = parameters["factor"]
    low, high = _yarn_range(parameters, dim)
    kept = 1 - ((np.arange(dim // 2) - low) / (high - low)).clip(0, 1)
    return inverse * (kept + (1 - kept) / factor), _yarn_stretch(parameters, factor)


def _yarn_range(parameters: Parameters, dim: int) -> tuple[float, float]:
    """Pairs of dimensions between which turns go from kept to slowed."""
    context, theta = parameters["original_max_position_embeddings"], parameters["rope_theta"]

    def pair(turns: float) -> float:
        return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = pair(parameters.get("beta_fast") or 32)
    high = pair(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return low, high if high != low else high + 0.001


def _yarn_stretch(parameters: Parameters, factor: float) -> float:
    def stretch(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    if (given := parameters.get("attention_factor")) is not None:
        return float(given)
    own, all_dims = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return stretch(own) / stretch(all_dims) if own and all_dims else stretch(1)


KINDS: Mapping[str, Callable[[Parameters, int], tuple[Doubles, float]]] = {
    "default": _default,
    "dynamic": _default,  # up to the model's own context, past which we never go
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
"""Inverse frequencies ``[dim / 2]``, and what cosines and sines are multiplied by."""
