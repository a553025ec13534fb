"""The default model itself: converted, loaded, answering as transformers does."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGUFReader

from starsd.engine.checkpoint import BUNDLED, bundled_file, resolve_checkpoint
from starsd.engine.interface import Row
from starsd.engine.loading import PretrainedModel
from starsd.engine.native.source import Checkpoint
from starsd.engine.native.weights import Int4
from starsd.engine.runner import TorchRunner
from tests.unit.engine.helpers import plain_logits, settings

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.xdist_group("real")]

CHAT = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def model() -> PretrainedModel:
    return PretrainedModel(settings(BUNDLED, batch_invariant=True))


@pytest.fixture(scope="module")
def runner(model: PretrainedModel) -> TorchRunner:
    runner = model.runner()
    assert isinstance(runner, TorchRunner)
    return runner


def _answer(runner: TorchRunner, prompt: list[int], eos: tuple[int, ...]) -> list[int]:
    text, start = list(prompt), 0
    while text[-1] not in eos or start == 0:
        logits = runner.forward([Row(2, text[start:], start)])[0]
        start = len(text)
        text.append(int(logits[-1].argmax()))
        if start > len(prompt) + 24:
            break
    return text


def test_answer_is_the_plain_models(model: PretrainedModel, runner: TorchRunner) -> None:
    tokenizer = model.tokenizer()
    assert tokenizer.eos_ids == (2,)
    prompt = tokenizer.encode_chat(CHAT)
    text = _answer(runner, prompt, tokenizer.eos_ids)
    stream = tokenizer.text_stream()
    said = "".join(stream.push(token) for token in text[len(prompt) :]) + stream.flush()
    assert "Paris" in said
    plain = plain_logits(model.folder, text)[len(prompt) - 1 : -1]
    picked = plain[np.arange(len(plain)), text[len(prompt) :]]
    assert (plain.max(axis=1) - picked).max() < 1e-3


def test_batch_invariant_on_this_machine(runner: TorchRunner) -> None:
    assert runner.invariance_holds is True


def test_int4_finds_the_blocks_of_the_shipped_file() -> None:
    """A block of Q4_1: scale and minimum in float16, 16 bytes with two weights each."""
    source = Checkpoint(resolve_checkpoint(settings(BUNDLED)))
    tensors = {tensor.name: tensor for tensor in GGUFReader(bundled_file()).tensors}
    for layer in range(30):
        tensor = tensors[f"blk.{layer}.ffn_down.weight"]
        assert tensor.tensor_type.name == "Q4_1"
        blocks = np.array(tensor.data).reshape(576, -1, 20)
        found = Int4.of(source.rows(f"model.layers.{layer}.mlp.down_proj.weight", 0, 576))
        facts = np.stack([found.scale, found.least], axis=2)
        np.testing.assert_array_equal(facts, blocks[:, :, :4].copy().view(np.float16))
        low, high = found.q[:, :, :16], found.q[:, :, 16:]
        np.testing.assert_array_equal(low | high << 4, blocks[:, :, 4:])
