"""The compiled decoder against transformers with the same rounding, and against itself."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from starsd.engine.interface import Logits, Row
from starsd.engine.native.decoder import MAX_TREE, SOURCE, NativeDecoder
from starsd.engine.native.runner import NativeRunner
from starsd.engine.native.weights import Int4, Int8
from starsd.engine.rows import ancestors
from starsd.errors import EngineError
from tests.compilers import COMPILERS, compiled_by
from tests.unit.engine.helpers import chunked, random_tokens
from tests.unit.engine.native.helpers import packed
from tests.unit.engine.test_runner import SIZES, TREE

BITS = [4, 8, 16]
SLOTS, LENGTH = 6, 256
CLOSE = 0.03
"""Root mean square error over that of the logits: a last digit may round otherwise, and grow."""


@pytest.fixture(scope="session", params=COMPILERS)
def compiled(request: pytest.FixtureRequest, native_cache: Path) -> ctypes.CDLL:
    return compiled_by(request.param, native_cache, SOURCE)


@pytest.fixture(scope="session", params=[16, 32], ids=lambda dim: f"heads of {dim}")
def tiny_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attention goes through tile registers where 32 divides a head's dimensions."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(LlamaConfig(**{**SIZES, "head_dim": request.param})).save_pretrained(folder)
    return folder


Load = Callable[..., NativeRunner]


@pytest.fixture
def make(compiled: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> Load:
    packed_at = tmp_path_factory.mktemp("packed")

    def make(folder: Path, bits: int, threads: int = 1) -> NativeRunner:
        sizes = {"slots": SLOTS, "max_length": LENGTH, "threads": threads}
        decoder = NativeDecoder(compiled, packed(folder, bits, packed_at), **sizes)
        facts: dict[str, Any] = {"revision": "r", "fingerprint": "f", "kv_memory": 2**30}
        return NativeRunner(decoder, slots=SLOTS, max_length=LENGTH, **facts)

    return make


def load(folder: Path, attention: str = "eager") -> Any:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention
    )


def briefly_cached(
    _: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """Causal attention over keys and values that were kept in bfloat16."""
    share = query.shape[1] // key.shape[1]
    key, value = (x.bfloat16().float().repeat_interleave(share, 1) for x in (key, value))
    found = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=kwargs["scaling"]
    )
    return found.transpose(1, 2), None


AttentionInterface.register("briefly_cached", briefly_cached)


class Rounded(nn.Linear):
    """Multiplies what the compiled decoder multiplies."""

    bits: int

    def forward(self, input: Tensor) -> Tensor:
        if self.bits == 16:
            return functional.linear(input.bfloat16().float(), self.weight, self.bias)
        size, levels = (32, 127) if self.bits == 4 else (input.shape[-1], 127 * 128)
        groups = input.reshape(*input.shape[:-1], -1, size)
        step = groups.abs().amax(-1, keepdim=True) / levels
        whole = (groups / step.clamp_min(1e-30)).round() * step
        return functional.linear(whole.flatten(-2), self.weight, self.bias)


def rounded(weight: Tensor, bits: int) -> nn.Parameter:
    if bits == 16:
        return nn.Parameter(weight.bfloat16().float())
    kind = Int8 if bits == 8 else Int4
    return nn.Parameter(torch.from_numpy(kind.of(weight.detach().numpy()).dense()))


def reference(folder: Path, bits: int, tokens: Sequence[int]) -> Logits:
    """``[len(tokens), vocab]`` of transformers, every product rounded."""
    model = load(folder, "briefly_cached")
    head = max(bits, 8)
    model.model.embed_tokens.weight = rounded(model.model.embed_tokens.weight, head)
    for module in model.modules():
        if type(module) is nn.Linear:
            of_head = module is model.lm_head
            module.__class__ = Rounded
            module.bits = head if of_head else bits  # type: ignore[assignment]
            module.weight = rounded(module.weight, module.bits)  # type: ignore[arg-type]
    with torch.inference_mode():
        logits: Logits = model(torch.tensor([list(tokens)]), use_cache=False).logits[0].numpy()
    return logits


def check_close(found: Logits, expected: Logits) -> None:
    error = np.sqrt(np.square(found - expected).mean() / np.square(expected).mean())
    assert error < CLOSE


@pytest.mark.parametrize("bits", BITS)
def test_it_computes_what_transformers_computes(make: Load, tiny_model: Path, bits: int) -> None:
    tokens = random_tokens(70, 1)
    found = make(tiny_model, bits).forward([Row(2, tokens, 0, want=70)])[0]
    check_close(found, reference(tiny_model, bits, tokens))


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (LlamaForCausalLM, LlamaConfig(**SIZES, attention_bias=True, tie_word_embeddings=True)),
        (Qwen2ForCausalLM, Qwen2Config(**SIZES)),
        (Qwen3ForCausalLM, Qwen3Config(**SIZES)),
        (MistralForCausalLM, MistralConfig(**SIZES, sliding_window=256)),
        (LlamaForCausalLM, LlamaConfig(**{**SIZES, "hidden_size": 96})),
    ],
    ids=["llama", "qwen2", "qwen3", "mistral", "columns no multiple of four"],
)
@pytest.mark.parametrize("bits", BITS)
def test_architectures(
    make: Load,
    tmp_path: Path,
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    bits: int,
) -> None:
    torch.manual_seed(0)
    model = model_class(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight, std=0.3)
    model.save_pretrained(tmp_path)
    text = random_tokens(60, 11)
    found = chunked(make(tmp_path, bits), 1, text, [33, 1, 5, 21])
    check_close(found, reference(tmp_path, bits, text))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("sizes", [[70], [1] * 70, [16, 17, 5, 32], [3, 64, 3]])
def test_chunks_change_no_bit(make: Load, tiny_model: Path, bits: int, sizes: list[int]) -> None:
    runner = make(tiny_model, bits)
    tokens = random_tokens(70, 1)
    whole = runner.forward([Row(0, tokens, 0, want=70)])[0]
    np.testing.assert_array_equal(chunked(runner, 5, tokens, sizes), whole)


@pytest.mark.parametrize("bits", BITS)
def test_neighbours_change_no_bit(make: Load, tiny_model: Path, bits: int) -> None:
    runner = make(tiny_model, bits)
    text = random_tokens(50, 2)
    alone = runner.forward([Row(0, text, 0, want=50)])[0]
    for count in (1, 2, 7, 16, 40):
        rows = [Row(slot, random_tokens(count, slot), 0) for slot in (1, 4)]
        rows.insert(1, Row(2, text, 0, want=50))
        np.testing.assert_array_equal(runner.forward(rows)[1], alone)


@pytest.mark.parametrize("bits", BITS)
def test_threads_change_no_bit(make: Load, tiny_model: Path, bits: int) -> None:
    rows = [Row(0, random_tokens(40, 1), 0, want=40), Row(3, random_tokens(9, 2), 0)]
    alone, *others = (make(tiny_model, bits, threads=count).forward(rows) for count in (1, 2, 3))
    for found in others:
        for first, second in zip(alone, found, strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("start", [0, 21, 30, 64, 95])
@pytest.mark.parametrize("bits", BITS)
def test_tree_equals_its_chains(make: Load, tiny_model: Path, bits: int, start: int) -> None:
    """Bit for bit, wherever in blocks of keys its branches lie."""
    runner = make(tiny_model, bits)
    prefix = random_tokens(start, 7)
    tokens, parents = TREE
    if prefix:
        runner.forward([Row(0, prefix, 0), Row(4, prefix, 0)])
    tree = runner.forward([Row(0, tokens, start, want=6, parents=parents)])[0]
    for path in ([0, 1], [0, 2, 3, 5], [4]):
        chain = [tokens[index] for index in path]
        found = runner.forward([Row(4, chain, start, want=len(chain))])[0]
        np.testing.assert_array_equal(tree[path], found)


@pytest.mark.parametrize("start", [3, 57])
def test_a_large_tree_in_company_equals_its_chains(
    make: Load, tiny_model: Path, start: int
) -> None:
    runner, rng = make(tiny_model, 8), np.random.default_rng(start)
    prefix, tokens = random_tokens(start, 7), random_tokens(MAX_TREE, 8)
    parents = [-1, *(int(rng.integers(0, index)) for index in range(1, MAX_TREE))]
    runner.forward([Row(0, prefix, 0), Row(4, prefix, 0)])
    company = [Row(slot, random_tokens(9, slot), 0) for slot in (1, 5)]
    tree = Row(0, tokens, start, want=MAX_TREE, parents=parents)
    found = runner.forward([company[0], tree, company[1]])[1]
    for seen in ancestors(parents):
        path = np.flatnonzero(seen).tolist()
        chain = [tokens[index] for index in path]
        exact = runner.forward([Row(4, chain, start, want=len(chain))])[0]
        np.testing.assert_array_equal(found[path], exact)


def test_compact_keeps_the_accepted_path(make: Load, tiny_model: Path) -> None:
    runner = make(tiny_model, 16)
    prefix = random_tokens(21, 8)
    tokens, parents = TREE
    path = [0, 2, 3, 5]
    text = [*prefix, *(tokens[index] for index in path), 77]
    runner.forward([Row(3, prefix, 0), Row(1, text[:-1], 0)])
    runner.forward([Row(3, tokens, 21, parents=parents)])
    wrong = runner.forward([Row(3, [77], 25)])[0]
    runner.forward([Row(3, tokens, 21, parents=parents)])
    runner.compact(3, 21, path)
    moved, chain = runner.forward([Row(3, [77], 25), Row(1, [77], 25)])
    np.testing.assert_array_equal(moved, chain)
    assert np.abs(wrong - chain).max() > 0.1


def test_rollback_is_starting_lower(make: Load, tiny_model: Path) -> None:
    runner = make(tiny_model, 8)
    text = random_tokens(40, 3)
    whole = runner.forward([Row(0, text, 0, want=40)])[0]
    runner.forward([Row(1, [*text[:30], *random_tokens(60, 4)], 0)])
    found = runner.forward([Row(1, text[30:], 30, want=10)])[0]
    np.testing.assert_array_equal(found, whole[30:])


def test_a_whole_slot_can_be_used(make: Load, tiny_model: Path) -> None:
    text = random_tokens(LENGTH, 6)
    found = chunked(make(tiny_model, 16), SLOTS - 1, text, [200, 55, 1])
    check_close(found, reference(tiny_model, 16, text))


def test_time_is_put_down_to_parts(make: Load, tiny_model: Path) -> None:
    runner = make(tiny_model, 8)
    assert set(runner.parts().values()) == {0}
    start = time.perf_counter()
    for _ in range(3):
        runner.forward([Row(0, random_tokens(60, 1), 0)])
    parts = runner.parts()
    assert set(parts) == {"matrices", "attention", "cache", "elementwise"}
    assert min(parts.values()) > 0
    assert sum(parts.values()) < time.perf_counter() - start


def test_nothing_wanted(make: Load, tiny_model: Path) -> None:
    runner = make(tiny_model, 4)
    assert runner.forward([]) == []
    assert runner.forward([Row(0, [1, 2], 0, want=0)])[0].shape == (0, 320)


def test_impossible_rows_are_refused(make: Load, tiny_model: Path) -> None:
    runner = make(tiny_model, 4)
    for row in (Row(6, [1], 0), Row(0, [1], -1), Row(0, [320], 0), Row(0, [1, 2], 255)):
        with pytest.raises(EngineError):
            runner.forward([row])
    wide = Row(0, [1] * 33, 0, parents=[-1] * 33)
    with pytest.raises(EngineError, match="33 tokens; the limit is 32"):
        runner.forward([wide])
