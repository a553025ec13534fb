"""A causal language model in the hands of decoder.c."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from starsd.engine.interface import Features, Logits, Row
from starsd.engine.native.abi import PARTS, TOKEN, Array, Layer, Matrix, Memory, Model
from starsd.engine.native.cache import NativeCache
from starsd.engine.native.plan import Product, layer_products, table_product
from starsd.engine.native.rope import rope_tables
from starsd.engine.native.store import Weights
from starsd.engine.rows import check_taps, last_tokens
from starsd.errors import EngineError

SOURCE = Path(__file__).with_name("decoder.c")
ROUNDING = 4
"""Part of the fingerprint; to be raised whenever a change to the code moves a bit of a result."""
POINTER = ctypes.c_void_p
FORWARD = (POINTER, POINTER, ctypes.c_int, POINTER, ctypes.c_int, POINTER)
MAX_TREE = 32
"""Tokens of a tree row: one bit each."""


class NativeDecoder:
    """Weights, cache and the call."""

    def __init__(
        self,
        library: ctypes.CDLL,
        weights: Weights,
        *,
        slots: int,
        max_length: int,
        threads: int = 1,
    ) -> None:
        """Raises ConfigError: no addresses for so many slots."""
        of = weights.of
        self._forward = library.starsd_forward
        self._forward.argtypes = FORWARD
        self._memory = Memory()
        self._weights = weights
        self.vocab_size = of.vocab_size
        self._outputs = of.output_size
        dim = of.head_dim
        kv_heads = of.num_key_value_heads
        self.cache = NativeCache(slots, of.num_hidden_layers, kv_heads, max_length, dim)
        self.spent = self._memory.zeros((len(PARTS),), np.int64)
        """Nanoseconds of all forwards, by ``PARTS``."""
        cos, sin = rope_tables(of.rope_parameters, dim, max_length)
        head = self._matrix(table_product(of, "head", weights.bits))
        own = "embedding.tiles" in weights.arrays
        layers = [self._layer(index) for index in range(of.num_hidden_layers)]
        self._model = Model(
            layers=of.num_hidden_layers,
            hidden=of.hidden_size,
            heads=of.num_attention_heads,
            kv_heads=kv_heads,
            dim=dim,
            inner=of.intermediate_size,
            slots=slots,
            length=self.cache.length,
            threads=threads,
            eps=of.rms_norm_eps,
            scale=dim**-0.5,
            norm=self._address("norm"),
            cos=self._memory.keep(cos),
            sin=self._memory.keep(sin),
            embedding=self._matrix(table_product(of, "embedding", weights.bits)) if own else head,
            head=head,
            keys=self.cache.keys.ctypes.data,
            values=self.cache.values.ctypes.data,
            spent=self.spent.ctypes.data,
            layer=(Layer * len(layers))(*layers),
        )
        self._features: Features = np.empty((0, 0), np.uint16)
        self.tap(())

    def tap(self, layers: Sequence[int]) -> None:
        """See ``Runner.tap``. Raises ConfigError."""
        check_taps(layers, self._model.layers)
        self._tapped = self._memory.zeros((len(layers),), np.int32)
        self._tapped[:] = layers
        self._model.taps, self._model.tapped = len(layers), self._tapped.ctypes.data

    def features(self) -> Features:
        """Of all tokens of the last forward: ``[tokens, taps * hidden]``."""
        return self._features

    def forward(self, rows: Sequence[Row]) -> Logits:
        """Logits of all wanted tokens, row by row: ``[wanted, vocabulary]``. Raises EngineError."""
        tokens = _tokens(rows)
        wanted = last_tokens(rows).astype(np.int32)
        logits = np.empty((len(wanted), self._model.head.outputs), dtype=np.float32)
        width = self._model.taps * self._model.hidden
        self._features = np.empty((len(tokens), width), dtype=np.uint16)
        self._model.features = self._features.ctypes.data
        failed = self._forward(
            ctypes.byref(self._model),
            tokens.ctypes.data,
            len(tokens),
            wanted.ctypes.data,
            len(wanted),
            logits.ctypes.data,
        )
        if failed:
            raise EngineError(f"forward of {len(tokens)} tokens: out of memory")
        return logits[:, : self._outputs]

    def _layer(self, index: int) -> Layer:
        products = layer_products(self._weights.of, index, self._weights.bits)
        qkv, out, gate_up, down = (self._matrix(product) for product in products)
        return Layer(
            qkv=qkv,
            out=out,
            gate_up=gate_up,
            down=down,
            norm1=self._address(f"{index}.norm1"),
            norm2=self._address(f"{index}.norm2"),
            q_norm=self._address(f"{index}.q_norm"),
            k_norm=self._address(f"{index}.k_norm"),
        )

    def _matrix(self, product: Product) -> Matrix:
        return Matrix(
            bits=product.bits,
            inputs=product.inputs,
            outputs=product.padded,
            tiles=self._address(f"{product.name}.tiles"),
            scale=self._address(f"{product.name}.scale"),
            bias=self._address(f"{product.name}.bias"),
        )

    def _address(self, name: str) -> int | None:
        array = self._weights.arrays.get(name)
        return None if array is None else array.ctypes.data


def arithmetic(library: ctypes.CDLL) -> str:
    """What this machine's sums are made with: another name, other bits."""
    library.starsd_arithmetic.restype = ctypes.c_char_p
    found: bytes = library.starsd_arithmetic()
    return found.decode()


def check_trees(rows: Sequence[Row]) -> None:
    """Raises EngineError: a tree of more tokens than it has bits for."""
    for row in rows:
        if row.parents is not None and len(row.tokens) > MAX_TREE:
            raise EngineError(f"a tree of {len(row.tokens)} tokens; the limit is {MAX_TREE}")


def _tokens(rows: Sequence[Row]) -> Array:
    """``[tokens]`` of dtype ``TOKEN``, row by row."""
    found: list[tuple[int, ...]] = []
    for row in rows:
        found += _chain(row) if row.parents is None else _tree(row, row.parents)
    return np.array(found, np.uint32).view(TOKEN)[:, 0]


def _chain(row: Row) -> list[tuple[int, ...]]:
    return [
        (token, row.slot, place, place, place + 1, row.start, 0)
        for place, token in enumerate(row.tokens, row.start)
    ]


def _tree(row: Row, parents: Sequence[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    seen = [0] * (len(parents) + 1)  # the last is the prefix's
    for index, (token, parent) in enumerate(zip(row.tokens, parents, strict=True)):
        position = row.start + seen[parent].bit_count()
        seen[index] = seen[parent] | 1 << index
        found.append(
            (token, row.slot, row.start + index, position, row.start, row.start, seen[index])
        )
    return found
