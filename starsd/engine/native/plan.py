"""Which matrices and vectors decoder.c works with, and which weights they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from starsd.engine.native.architecture import Architecture, HeadArchitecture
from starsd.engine.native.weights import LANES, pack

HEAD_BITS = 8
"""At least; of embedding and head."""
EMBEDDING, HEAD = "model.embed_tokens", "lm_head"

Sizes = dict[str, tuple[str, int]]
"""Type and bytes of each array by name, in the order in which they are kept."""
Shapes = dict[str, tuple[int, ...]]
"""Of a checkpoint's weights, by name."""

_FLOAT = 4


@dataclass(frozen=True)
class Product:
    """One matrix of the modules ``parts`` that share their input, with ``outputs`` of each."""

    name: str
    parts: tuple[str, ...]
    bits: int
    inputs: int
    outputs: tuple[int, ...]
    bias: bool = False

    @property
    def padded(self) -> int:
        """Outputs, filled up to whole tiles."""
        return -(-sum(self.outputs) // LANES) * LANES

    def sizes(self) -> Sizes:
        tile, scale = pack(np.zeros((LANES, self.inputs), dtype=np.float32), self.bits)
        found = {f"{self.name}.tiles": ("U8", self.padded // LANES * tile.nbytes)}
        if scale is not None:
            found[f"{self.name}.scale"] = ("F32", self.padded * _FLOAT)
        if self.bias:
            found[f"{self.name}.bias"] = ("F32", self.padded * _FLOAT)
        return found

    def shapes(self) -> Shapes:
        found: Shapes = {}
        for part, outputs in zip(self.parts, self.outputs, strict=True):
            found[f"{part}.weight"] = (outputs, self.inputs)
            if self.bias:
                found[f"{part}.bias"] = (outputs,)
        return found


@dataclass(frozen=True)
class Norm:
    """Factors of the module ``part``."""

    name: str
    part: str
    width: int

    def sizes(self) -> Sizes:
        return {self.name: ("F32", self.width * _FLOAT)}

    def shapes(self) -> Shapes:
        return {f"{self.part}.weight": (self.width,)}


Part = Product | Norm


def plan(of: Architecture, bits: int, *, tied: bool) -> list[Part]:
    """All of the model, in the order of use."""
    parts: list[Part] = [] if tied else [table_product(of, "embedding", bits)]
    for index in range(of.num_hidden_layers):
        parts += _layer(of, index, bits)
    parts += [
        Norm("norm", "model.norm", of.hidden_size),
        table_product(of, "head", bits, EMBEDDING if tied else HEAD),
    ]
    if isinstance(of, HeadArchitecture):
        state_norm = Norm("state_norm", "model.layers.0.hidden_norm", of.hidden_size)
        parts += [state_norm, fuse_product(of, bits)]
    return parts


def table_product(of: Architecture, name: str, bits: int, part: str = EMBEDDING) -> Product:
    """``embedding`` or ``head``."""
    outputs = of.output_size if name == "head" else of.vocab_size
    return Product(name, (part,), max(bits, HEAD_BITS), of.hidden_size, (outputs,))


def fuse_product(of: HeadArchitecture, bits: int) -> Product:
    """From the target's states to a draft head's."""
    return Product("fuse", ("model.fc",), bits, of.features, (of.hidden_size,), of.fc_bias)


def layer_products(of: Architecture, index: int, bits: int) -> tuple[Product, ...]:
    """qkv, out, gate_up, down."""
    hidden, inner = of.hidden_size, of.intermediate_size
    queries, keys = (of.head_dim * n for n in (of.num_attention_heads, of.num_key_value_heads))

    def product(
        name: str, parts: Sequence[str], inputs: int, outputs: tuple[int, ...], bias: bool
    ) -> Product:
        modules = tuple(f"model.layers.{index}.{part}_proj" for part in parts)
        return Product(f"{index}.{name}", modules, bits, inputs, outputs, bias)

    attention = [f"self_attn.{one}" for one in "qkv"]
    return (
        product("qkv", attention, of.attention_inputs, (queries, keys, keys), of.qkv_bias),
        product("out", ["self_attn.o"], queries, (hidden,), of.out_bias),
        product("gate_up", ["mlp.gate", "mlp.up"], hidden, (inner, inner), of.mlp_bias),
        product("down", ["mlp.down"], inner, (hidden,), of.mlp_bias),
    )


def _layer(of: Architecture, index: int, bits: int) -> Iterator[Part]:
    module = f"model.layers.{index}"
    yield Norm(f"{index}.norm1", f"{module}.input_layernorm", of.hidden_size)
    yield Norm(f"{index}.norm2", f"{module}.post_attention_layernorm", of.hidden_size)
    if of.qk_norms:
        yield Norm(f"{index}.q_norm", f"{module}.self_attn.q_norm", of.head_dim)
        yield Norm(f"{index}.k_norm", f"{module}.self_attn.k_norm", of.head_dim)
    yield from layer_products(of, index, bits)
