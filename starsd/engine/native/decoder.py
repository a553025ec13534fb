"""A causal language model in the hands of decoder.c."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from starsd.engine.batch import ancestors, depths
from starsd.engine.decoder import is_family
from starsd.engine.interface import Logits, Row
from starsd.engine.native.abi import TOKEN, Array, Layer, Matrix, Memory, Model
from starsd.engine.native.weights import GROUP, LANES, Bytes, Floats, Int4, Int8, brain_tiles
from starsd.errors import EngineError, UnsupportedModelError

HEAD_BITS = 8
"""At least; of embedding and head."""
MAX_TREE = 32
"""Tokens of a tree row: one bit each."""


class NativeDecoder:
    """Weights, cache and the call. ``arithmetic`` is what this machine computes with.

    ``keys [layers, slots, kv_heads, length / 16, dim, 16]`` and ``values [layers, slots, kv_heads,
    length / 16, 16, dim]`` are float16.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        model: Any,
        bits: int,
        *,
        slots: int,
        max_length: int,
        threads: int = 1,
    ) -> None:
        """Takes over the weights of a transformers model, which is of no use afterwards.

        Raises:
            UnsupportedModelError: shapes or an activation that decoder.c does not know.
        """
        check_family(model)
        base, layer = model.model, model.model.layers[0]
        self._forward = library.starsd_forward
        library.starsd_arithmetic.restype = ctypes.c_char_p
        self.arithmetic: str = library.starsd_arithmetic().decode()
        self._memory = Memory()
        self.vocab_size = len(model.lm_head.weight)
        attention = layer.self_attn
        dim = attention.head_dim
        kv_heads = attention.k_proj.out_features // dim
        blocks = -(-max_length // LANES)
        shape = (len(base.layers), slots, kv_heads, blocks)
        self.keys = self._memory.zeros((*shape, dim, LANES), np.float16)
        self.values = self._memory.zeros((*shape, LANES, dim), np.float16)
        cos, sin = self._rope(base.rotary_emb, max_length)
        tied = model.lm_head.weight is base.embed_tokens.weight
        head_bits = max(bits, HEAD_BITS)
        head = self._matrix(head_bits, model.lm_head)
        self._model = Model(
            layers=len(base.layers),
            hidden=model.config.hidden_size,
            heads=attention.q_proj.out_features // dim,
            kv_heads=kv_heads,
            dim=dim,
            inner=layer.mlp.down_proj.in_features,
            slots=slots,
            length=blocks * LANES,
            threads=threads,
            eps=base.norm.variance_epsilon,
            scale=attention.scaling,
            norm=self._vector(base.norm),
            cos=cos,
            sin=sin,
            embedding=head if tied else self._matrix(head_bits, base.embed_tokens),
            head=head,
            keys=self.keys.ctypes.data,
            values=self.values.ctypes.data,
            layer=(Layer * len(base.layers))(*(self._layer(bits, one) for one in base.layers)),
        )

    def forward(self, rows: Sequence[Row]) -> Logits:
        """Logits of all wanted tokens, row by row: ``[wanted, vocabulary]``. Raises EngineError."""
        tokens = np.concatenate([_tokens(row) for row in rows])
        ends = np.cumsum([len(row.tokens) for row in rows]).tolist()
        parts = [np.arange(end - row.want, end) for row, end in zip(rows, ends, strict=True)]
        wanted = np.concatenate(parts).astype(np.int32)
        logits = np.empty((len(wanted), self._model.head.outputs), dtype=np.float32)
        failed = self._forward(
            ctypes.byref(self._model),
            _pointer(tokens),
            ctypes.c_int(len(tokens)),
            _pointer(wanted),
            ctypes.c_int(len(wanted)),
            _pointer(logits),
        )
        if failed:
            raise EngineError(f"forward of {len(tokens)} tokens: out of memory")
        return logits[:, : self.vocab_size]

    def _layer(self, bits: int, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return Layer(
            qkv=self._matrix(bits, attention.q_proj, attention.k_proj, attention.v_proj),
            out=self._matrix(bits, attention.o_proj),
            gate_up=self._matrix(bits, mlp.gate_proj, mlp.up_proj),
            down=self._matrix(bits, mlp.down_proj),
            norm1=self._vector(layer.input_layernorm),
            norm2=self._vector(layer.post_attention_layernorm),
            q_norm=self._vector(getattr(attention, "q_norm", None)),
            k_norm=self._vector(getattr(attention, "k_norm", None)),
        )

    def _matrix(self, bits: int, *parts: Any) -> Matrix:
        """One matrix of modules that share their input; their weights are freed."""
        weight = np.concatenate([_floats(part.weight) for part in parts])
        biases = [getattr(part, "bias", None) for part in parts]
        for part in parts:
            part.weight = part.bias = None
        packed, scale = _packed(weight, bits)
        bias = None if biases[0] is None else np.concatenate([_floats(one) for one in biases])
        return Matrix(
            bits=bits,
            inputs=weight.shape[1],
            outputs=len(packed) * LANES,
            tiles=self._memory.keep(packed),
            scale=self._filled(scale),
            bias=self._filled(bias),
        )

    def _filled(self, per_output: Floats | None) -> int | None:
        if per_output is None:
            return None
        return self._memory.keep(np.pad(per_output, (0, -len(per_output) % LANES)))

    def _vector(self, norm: Any) -> int | None:
        return None if norm is None else self._memory.keep(_floats(norm.weight))

    def _rope(self, rotary: Any, max_length: int) -> tuple[int, int]:
        cos, sin = rotary(torch.zeros(1), torch.arange(max_length)[None])
        half = cos.shape[-1] // 2
        first, second = (self._memory.keep(_floats(part[0, :, :half])) for part in (cos, sin))
        return first, second


def check_family(model: Any) -> None:
    """Whether decoder.c computes this transformers model.

    Raises:
        UnsupportedModelError: it does not; says why.
    """
    if found := _unknown(model):
        kind = model.config.model_type
        raise UnsupportedModelError(
            f"the compiled decoder does not know model type {kind!r} with {', '.join(found)}"
        )


def _unknown(model: Any) -> list[str]:
    if not is_family(model):
        return ["its kind of layers"]
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    products = (attention.q_proj, attention.k_proj, attention.o_proj, mlp.up_proj, mlp.down_proj)
    inputs = (attention.q_proj, attention.o_proj, mlp.down_proj)
    faults = [
        (attention.head_dim % LANES, f"heads of {attention.head_dim} dimensions"),
        (model.config.hidden_act != "silu", f"activation {model.config.hidden_act!r}"),
        (any(part.out_features % LANES for part in products), f"outputs that {LANES} divides not"),
        (any(part.in_features % GROUP for part in inputs), f"inputs that {GROUP} divides not"),
    ]
    return [text for fault, text in faults if fault]


def _packed(weight: Floats, bits: int) -> tuple[Bytes, Floats | None]:
    """Tiles, and what scales each output."""
    if bits == 16:
        return brain_tiles(weight), None
    if bits == 8:
        whole = Int8.of(weight)
        return whole.tiles(), whole.scale
    return Int4.of(weight).tiles(), None


def _floats(tensor: Any) -> Floats:
    array: Floats = tensor.detach().float().numpy()
    return array


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _tokens(row: Row) -> Array:
    """``[tokens]`` of dtype ``TOKEN``."""
    count = len(row.tokens)
    tokens = np.zeros(count, dtype=TOKEN)
    tokens["id"] = row.tokens
    tokens["slot"] = row.slot
    tokens["place"] = row.start + np.arange(count)
    tokens["position"] = row.start + depths(row)
    tokens["start"] = row.start
    if row.parents is None:
        tokens["linear"] = tokens["place"] + 1
    else:
        tokens["linear"] = row.start
        tokens["tree"] = ancestors(row.parents) @ (1 << np.arange(count, dtype=np.uint32))
    return tokens
