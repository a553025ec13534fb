"""Sliding windows much shorter than the text, against transformers' forward without a cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Exaone4Config,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    MixtralConfig,
    Olmo3Config,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Starcoder2Config,
)

from starsd.engine.attention import BATCH, slot_attention
from starsd.engine.batch import Packer
from starsd.engine.interface import Logits, Row
from starsd.engine.kv_cache import KvCache
from starsd.engine.native.runner import NativeRunner
from starsd.engine.runner import TorchRunner
from starsd.engine.support import layer_windows
from starsd.errors import UnsupportedModelError
from tests.unit.engine.helpers import chunked, make_runner, random_tokens
from tests.unit.engine.test_runner import CLOSE, SIZES, TREE

WINDOW = 11
WIDE = 64
MIXED: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"]}
SLIDING: dict[str, Any] = {**SIZES, "sliding_window": WINDOW}
WITHOUT_DIM = {key: value for key, value in SLIDING.items() if key != "head_dim"}
EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
QWEN: dict[str, Any] = {"use_sliding_window": True, "max_window_layers": 1}

FAMILIES: dict[str, PreTrainedConfig] = {
    "mistral": MistralConfig(**SLIDING),
    "ministral": MinistralConfig(**SLIDING, **MIXED),
    "mixtral": MixtralConfig(**SLIDING, **EXPERTS),
    "qwen2": Qwen2Config(**SLIDING, **QWEN),
    "qwen3": Qwen3Config(**SLIDING, **QWEN),
    "phi3": Phi3Config(**WITHOUT_DIM),
    "starcoder2": Starcoder2Config(**WITHOUT_DIM),
    "gemma2": Gemma2Config(**SLIDING, query_pre_attn_scalar=7, attn_logit_softcapping=3.0),
    "gemma3_text": Gemma3TextConfig(**SLIDING, **MIXED, query_pre_attn_scalar=7),
    "cohere2": Cohere2Config(**SLIDING, **MIXED),
    "olmo3": Olmo3Config(**SLIDING, **MIXED),
    "exaone4": Exaone4Config(**SLIDING, **MIXED),
    "gpt_oss": GptOssConfig(**SLIDING, **MIXED, **EXPERTS),
}
OWN_DECODER = ("mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class Made:
    """A random model, a runner of it, and transformers' own forward over a whole text."""

    folder: Path
    runner: TorchRunner
    plain: Any

    def exact(self, text: list[int]) -> Logits:
        """``[len(text), vocab]``."""
        with torch.inference_mode():
            logits: Logits = self.plain(torch.tensor([text]), use_cache=False).logits[0].numpy()
        return logits


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Models by family, each made once."""

    @functools.cache
    def made(family: str) -> Made:
        folder = save(FAMILIES[family], tmp_path_factory.mktemp(family))
        return Made(folder, make_runner(folder), load(folder))

    return made


def save(config: PreTrainedConfig, folder: Path) -> Path:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    for key, weight in model.named_parameters():
        if key.endswith("sinks"):
            nn.init.normal_(weight, std=2.0)
    model.save_pretrained(folder)
    return folder


def load(folder: Path, **changes: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **changes)


each_family = pytest.mark.parametrize("family", FAMILIES)
Make = Callable[[str], Made]


@each_family
def test_chunks_match_a_plain_forward(make: Make, family: str) -> None:
    model, text = make(family), random_tokens(90, 1)
    exact = model.exact(text)
    found = chunked(model.runner, 1, text, [33, 1, 5, 1, 30, 20])
    np.testing.assert_allclose(found, exact, atol=CLOSE)
    unbounded = replace(model, plain=load(model.folder, sliding_window=250)).exact(text)
    assert np.abs(unbounded - exact)[:WINDOW].max() < CLOSE
    assert np.abs(unbounded - exact)[WINDOW:].max() > 100 * CLOSE


@each_family
def test_ragged_batch_matches_each_text_alone(make: Make, family: str) -> None:
    """Slots whose windows begin at different keys, one of them before any is full."""
    model = make(family)
    texts = [random_tokens(count, count) for count in (7, 30, 120, 64)]
    fresh = (2, 5, 1, 40)
    parts = list(zip(range(4), texts, fresh, strict=True))
    model.runner.forward([Row(slot, text[:-new], 0, want=0) for slot, text, new in parts])
    rows = [Row(slot, text[-new:], len(text) - new, want=new) for slot, text, new in parts]
    for row, text, found in zip(rows, texts, model.runner.forward(rows), strict=True):
        np.testing.assert_allclose(found, model.exact(text)[-row.want :], atol=CLOSE)


@each_family
@pytest.mark.parametrize("start", [0, 9, 41])
def test_tree_equals_its_paths(make: Make, family: str, start: int) -> None:
    """The window counts positions, which in a tree are not places."""
    model, prefix = make(family), random_tokens(start, 7)
    tokens, parents = TREE
    if prefix:
        model.runner.forward([Row(0, prefix, 0)])
    tree = model.runner.forward([Row(0, tokens, start, want=6, parents=parents)])[0]
    for path in ([0, 1], [0, 2, 3, 5], [4]):
        text = [*prefix, *(tokens[index] for index in path)]
        np.testing.assert_allclose(tree[path], model.exact(text)[start:], atol=CLOSE)


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("invariant", [False, True])
def test_wide_tree_within_a_window(make: Make, family: str, invariant: bool) -> None:
    """More siblings than the window is long, and in batch-invariant mode than a tile has."""
    model, prefix, width = make(family), random_tokens(30, 8), 40
    runner = make_runner(model.folder, batch_invariant=True) if invariant else model.runner
    tokens = [*range(100, 100 + width), 77]
    runner.forward([Row(0, prefix, 0)])
    row = Row(0, tokens, 30, want=width + 1, parents=[-1] * width + [width - 1])
    found = runner.forward([row])[0]
    exact = model.exact([*prefix, tokens[-2], 77])[-2:]
    np.testing.assert_allclose(found[-2:], exact, atol=CLOSE)


def test_e2_rollback_within_a_window(make: Make) -> None:
    """What a proposal pushed out of the window is back when it is rejected."""
    model, text = make("mistral"), random_tokens(40, 3)
    model.runner.forward([Row(1, [*text[:30], *random_tokens(60, 4)], 0)])
    found = model.runner.forward([Row(1, text[30:], 30, want=10)])[0]
    np.testing.assert_allclose(found, model.exact(text)[30:], atol=CLOSE)


@pytest.mark.parametrize("family", [*OWN_DECODER, "phi3", "gemma2", "gemma3_text"])
def test_batch_invariant(make: Make, family: str) -> None:
    """Bit for bit, at lengths where windows begin in different blocks of keys."""
    model, text = make(family), random_tokens(200, 5)
    runner = make_runner(model.folder, batch_invariant=True)
    assert runner.invariance_holds
    whole = runner.forward([Row(0, text, 0, want=200)])[0].copy()
    np.testing.assert_allclose(whole, model.exact(text), atol=CLOSE)
    parts, start = [], 0
    for size in (64, 1, 60, 16, 1, 58):
        others = [Row(slot, random_tokens(90 * slot, slot), 0) for slot in (1, 2)]
        rows = [others[0], Row(3, text[start : start + size], start, want=size), others[1]]
        parts.append(runner.forward(rows)[1].copy())
        start += size
    assert np.array_equal(np.concatenate(parts), whole)


def test_sliding_layers_read_no_key_before_the_window(make: Make) -> None:
    """Not merely masked: a step of a long text costs what its window costs."""
    (group,) = make("mistral").runner._packer.pack([Row(0, [5], 200)]).batch.groups
    assert (group.sights[WINDOW].first, group.length) == (176, 208)


def test_compiled_code_leaves_windows_to_torch(tmp_path: Path, native_cache: Path) -> None:
    """But not those that hide nothing."""
    folder = save(MistralConfig(**{**SLIDING, "sliding_window": WIDE}), tmp_path / "model")
    kind: dict[str, Any] = {"dtype": "bfloat16", "cache_dir": native_cache}
    assert isinstance(make_runner(folder, **kind, max_length=WIDE + 1), TorchRunner)
    assert isinstance(make_runner(folder, **kind, max_length=WIDE), NativeRunner)


def test_quantised_windows_are_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=f"STARSD_MAX_LENGTH to {WINDOW} or less"):
        make_runner(make("mistral").folder, quantize="int8", cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (LlamaConfig(num_hidden_layers=2), (None, None)),
        (MistralConfig(num_hidden_layers=2, sliding_window=5), (5, 5)),
        (MistralConfig(num_hidden_layers=2, sliding_window=None), (None, None)),
        (MistralConfig(num_hidden_layers=2, sliding_window=5, **MIXED), (5, 5)),
        (Qwen2Config(num_hidden_layers=2, sliding_window=5), (None, None)),
        (Qwen2Config(num_hidden_layers=2, sliding_window=5, **QWEN), (None, 5)),
        (Gemma3TextConfig(num_hidden_layers=2, sliding_window=5, **MIXED), (5, None)),
    ],
)
def test_layer_windows(config: PreTrainedConfig, windows: tuple[int | None, ...]) -> None:
    """A Mistral's ``layer_types`` are not read, by transformers neither."""
    assert layer_windows(config) == windows


@pytest.mark.parametrize(("config", "told"), [(WINDOW, None), (None, WINDOW), (WINDOW, 12)])
def test_a_model_that_contradicts_its_configuration_is_refused(
    config: int | None, told: int | None
) -> None:
    cache = KvCache(1, 64)
    packer = Packer(cache, torch.float32, torch.device("cpu"), invariant=False, windows=[config])
    batch = packer.pack([Row(0, [1, 2], 0)]).batch
    part = torch.zeros(1, 2, 2, 8)
    module = nn.Module()
    module.layer_idx = 0  # type: ignore[assignment]
    kwargs: dict[str, Any] = {"sliding_window": told, BATCH: batch}
    with pytest.raises(UnsupportedModelError, match=f"window of {told}, .* for {config}"):
        slot_attention(module, part, part, part, None, **kwargs)
