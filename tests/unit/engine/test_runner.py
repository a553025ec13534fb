from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
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

from starsd.engine.interface import Row
from starsd.engine.runner import TorchRunner
from starsd.errors import EngineError
from tests.unit.engine.helpers import (
    chunked,
    make_replaying,
    make_runner,
    plain_logits,
    random_tokens,
)

CLOSE = 1e-4
SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module", params=["eager", "replayed"])
def runner(request: pytest.FixtureRequest, tiny_model: Path) -> TorchRunner:
    return make_runner(tiny_model) if request.param == "eager" else make_replaying(tiny_model)[0]


def test_prefill_matches_plain_forward(runner: TorchRunner, tiny_model: Path) -> None:
    tokens = random_tokens(70, 1)
    found = runner.forward([Row(2, tokens, 0, want=70)])[0]
    np.testing.assert_allclose(found, plain_logits(tiny_model, tokens), atol=CLOSE)


@pytest.mark.parametrize("sizes", [[70], [1] * 70, [16, 17, 5, 32], [3, 64, 3]])
def test_chunks_match_plain_forward(
    runner: TorchRunner, tiny_model: Path, sizes: list[int]
) -> None:
    tokens = random_tokens(70, 1)
    found = chunked(runner, 5, tokens, sizes)
    np.testing.assert_allclose(found, plain_logits(tiny_model, tokens), atol=CLOSE)


def test_ragged_batch_matches_each_sequence_alone(runner: TorchRunner, tiny_model: Path) -> None:
    """Prefill, verification and plain decoding of five sequences in one forward."""
    texts = [random_tokens(count, 20 + count) for count in (9, 30, 80, 120, 47)]
    fresh = (9, 1, 5, 40, 16)
    for slot, (text, count) in enumerate(zip(texts, fresh, strict=True)):
        if len(text) > count:
            runner.forward([Row(slot, text[:-count], 0, want=0)])
    rows = [
        Row(slot, text[-count:], len(text) - count, want=count)
        for slot, (text, count) in enumerate(zip(texts, fresh, strict=True))
    ]
    for text, row, found in zip(texts, rows, runner.forward(rows[::-1])[::-1], strict=True):
        np.testing.assert_allclose(found, plain_logits(tiny_model, text)[-row.want :], atol=CLOSE)


def test_distant_slots_do_not_mix(runner: TorchRunner, tiny_model: Path) -> None:
    texts = {slot: random_tokens(20, slot) for slot in (0, 5)}
    runner.forward([Row(slot, text[:-1], 0, want=0) for slot, text in texts.items()])
    found = runner.forward([Row(slot, text[-1:], 19) for slot, text in texts.items()])
    for text, logits in zip(texts.values(), found, strict=True):
        np.testing.assert_allclose(logits[0], plain_logits(tiny_model, text)[-1], atol=CLOSE)


def test_rollback_is_starting_lower(runner: TorchRunner, tiny_model: Path) -> None:
    text = random_tokens(40, 3)
    runner.forward([Row(1, [*text[:30], *random_tokens(60, 4)], 0)])
    found = runner.forward([Row(1, text[30:], 30, want=10)])[0]
    np.testing.assert_allclose(found, plain_logits(tiny_model, text)[30:], atol=CLOSE)


def test_want_selects_the_last_tokens(runner: TorchRunner) -> None:
    tokens = random_tokens(12, 5)
    whole = runner.forward([Row(0, tokens, 0, want=12)])[0].copy()
    last, none = runner.forward([Row(0, tokens, 0, want=3), Row(1, tokens, 0, want=0)])
    assert none.shape == (0, 320)
    assert last.dtype == np.float32
    np.testing.assert_allclose(last, whole[-3:], atol=CLOSE)


def test_nothing_to_do(runner: TorchRunner) -> None:
    assert runner.forward([]) == []
    assert runner.forward([Row(0, [1, 2], 0, want=0)])[0].shape == (0, 320)


def test_whole_slot_can_be_used(runner: TorchRunner, tiny_model: Path) -> None:
    text = random_tokens(256, 6)
    found = chunked(runner, 0, text, [200, 55, 1])
    np.testing.assert_allclose(found, plain_logits(tiny_model, text), atol=CLOSE)


TREE = ([11, 12, 13, 14, 15, 16], [-1, 0, 0, 2, -1, 3])
"""Paths 11 12 | 11 13 14 16 | 15."""


@pytest.mark.parametrize("start", [0, 21])
def test_tree_equals_its_chains(runner: TorchRunner, start: int) -> None:
    prefix = random_tokens(start, 7)
    tokens, parents = TREE
    if prefix:
        runner.forward([Row(0, prefix, 0), Row(4, prefix, 0)])
    tree = runner.forward([Row(0, tokens, start, want=6, parents=parents)])[0].copy()
    for path in ([0, 1], [0, 2, 3, 5], [4]):
        chain = [tokens[index] for index in path]
        found = runner.forward([Row(4, chain, start, want=len(chain))])[0]
        np.testing.assert_allclose(tree[path], found, atol=CLOSE)


def test_compact_keeps_the_accepted_path(runner: TorchRunner) -> None:
    prefix = random_tokens(21, 8)
    tokens, parents = TREE
    path = [0, 2, 3, 5]
    text = [*prefix, *(tokens[index] for index in path), 77]
    runner.forward([Row(3, prefix, 0), Row(1, text[:-1], 0)])
    runner.forward([Row(3, tokens, 21, parents=parents)])
    wrong = runner.forward([Row(3, [77], 25)])[0].copy()
    runner.forward([Row(3, tokens, 21, parents=parents)])
    runner.compact(3, 21, path)
    moved, chain = runner.forward([Row(3, [77], 25), Row(1, [77], 25)])
    np.testing.assert_allclose(moved, chain, atol=CLOSE)
    assert np.abs(wrong - chain).max() > 100 * CLOSE


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([Row(0, [1], 0), Row(0, [2], 4)], "share"),
        ([Row(6, [1], 0)], "6 slots"),
        ([Row(-1, [1], 0)], "6 slots"),
        ([Row(0, [], 0)], "wanted"),
        ([Row(0, [1], 0, want=2)], "wanted"),
        ([Row(0, [1, 2], 255)], "256 positions"),
        ([Row(0, [1], -1)], "256 positions"),
        ([Row(0, [320], 0)], "vocabulary"),
        ([Row(0, [-1], 0)], "vocabulary"),
        ([Row(0, [1, 2], 0, parents=[-1, 1])], "tree"),
        ([Row(0, [1, 2], 0, parents=[-1])], "tree"),
    ],
)
def test_impossible_rows_are_refused(runner: TorchRunner, rows: Sequence[Row], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        runner.forward(rows)


def test_refused_rows_change_nothing(runner: TorchRunner) -> None:
    text = random_tokens(10, 9)
    before = runner.forward([Row(0, text, 0, want=10)])[0].copy()
    with pytest.raises(EngineError):
        runner.forward([Row(0, [5], 3), Row(1, [999], 0)])
    after = runner.forward([Row(0, text[-1:], 9)])[0]
    np.testing.assert_allclose(after, before[-1:], atol=CLOSE)


def test_overflow_dies_with_its_sequence(runner: TorchRunner, tiny_model: Path) -> None:
    text = random_tokens(40, 13)
    runner.forward([Row(4, random_tokens(60, 14), 0)])
    with torch.inference_mode():
        poison = torch.full((1, 2, 16), torch.nan)
        rows = runner._cache.rows(torch.tensor([4]), torch.tensor([50]), 2)
        runner._cache.write(0, poison, poison, rows)
    assert np.isnan(runner.forward([Row(4, [5], 60)])[0]).all()
    found = runner.forward([Row(4, text, 0, want=40)])[0]
    np.testing.assert_allclose(found, plain_logits(tiny_model, text), atol=CLOSE)


def test_identity_of_the_weights(tiny_model: Path, runner: TorchRunner) -> None:
    other = make_runner(tiny_model, dtype="bfloat16")
    assert other.revision == runner.revision
    assert other.fingerprint != runner.fingerprint
    assert "bfloat16" in other.fingerprint


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (LlamaForCausalLM, LlamaConfig(**SIZES, attention_bias=True)),
        (Qwen2ForCausalLM, Qwen2Config(**SIZES)),
        (Qwen3ForCausalLM, Qwen3Config(**SIZES)),
        (MistralForCausalLM, MistralConfig(**SIZES, sliding_window=256)),
    ],
    ids=["llama", "qwen2", "qwen3", "mistral"],
)
def test_architectures(
    tmp_path: Path, model_class: type[PreTrainedModel], config: PreTrainedConfig
) -> None:
    torch.manual_seed(0)
    model_class(config).save_pretrained(tmp_path)
    text = random_tokens(60, 11)
    found = chunked(make_runner(tmp_path), 1, text, [33, 1, 5, 21])
    np.testing.assert_allclose(found, plain_logits(tmp_path, text), atol=CLOSE)


def test_own_attention_scale_is_honoured(tmp_path: Path) -> None:
    """Gemma 2 without caps: scale from ``query_pre_attn_scalar``, two kinds of layers."""
    torch.manual_seed(0)
    config = Gemma2Config(
        **SIZES, sliding_window=256, query_pre_attn_scalar=7, attn_logit_softcapping=None
    )
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    text = random_tokens(40, 12)
    found = chunked(make_runner(tmp_path), 0, text, [20, 20])
    np.testing.assert_allclose(found, plain_logits(tmp_path, text), atol=CLOSE)
