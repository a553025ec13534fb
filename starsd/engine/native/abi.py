"""decoder.c's structures, for ctypes, and memory as it likes it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

LINE = 64
"""Bytes of a cache line, and of a vector; loads that straddle two cost double."""

TOKEN = np.dtype(
    [
        ("id", np.int32),
        ("slot", np.int32),
        ("place", np.int32),
        ("position", np.int32),
        ("linear", np.int32),
        ("start", np.int32),
        ("tree", np.uint32),
    ]
)
PARTS = ("matrices", "attention", "cache", "elementwise")
"""What a forward spends its time on."""
Array = np.ndarray[Any, Any]


class Matrix(ctypes.Structure):
    _fields_ = [
        ("bits", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("tiles", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    ]


class Layer(ctypes.Structure):
    _fields_ = [
        ("qkv", Matrix),
        ("out", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("norm1", ctypes.c_void_p),
        ("norm2", ctypes.c_void_p),
        ("q_norm", ctypes.c_void_p),
        ("k_norm", ctypes.c_void_p),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("dim", ctypes.c_int32),
        ("inner", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("length", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("layer", ctypes.POINTER(Layer)),
        ("norm", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("embedding", Matrix),
        ("head", Matrix),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("spent", ctypes.c_void_p),
        ("taps", ctypes.c_int32),
        ("tapped", ctypes.c_void_p),
        ("features", ctypes.c_void_p),
        ("state_norm", ctypes.c_void_p),
        ("norm_before_residual", ctypes.c_int32),
        ("fuse", Matrix),
        ("states", ctypes.c_void_p),
        ("guesses", ctypes.c_void_p),
    ]


class Memory:
    """Keeps what C points to, aligned."""

    def __init__(self) -> None:
        self._held: list[Array] = []

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = np.zeros(size + LINE, dtype=np.uint8)
        start = -raw.ctypes.data % LINE
        return raw[start : start + size].view(dtype).reshape(shape)

    def keep(self, array: Array) -> int:
        """Address of a copy, valid as long as this."""
        copy = self.zeros(array.shape, array.dtype)
        copy[...] = array
        self._held.append(copy)
        return copy.ctypes.data
