"""A tiny Llama made on the spot: random weights whose text behaves like text.

Next-token entropy at temperature 1 is that of language (2 to 4 bits), answers do not end at once,
and layers matter less the later they come, so that ``layers:N`` and ``noisy:S`` drafts agree with
it sometimes and differ sometimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = 320
LAYERS = 4
CONTEXT = 512
LAYERS_DRAFT = "layers:2"
NOISY_DRAFT = "noisy:0.05"
"""Drafts of this model whose greedy agreement with it lies between 0.2 and 0.9."""

_HEAD_STD = 0.42
_LAYER_GAINS = (1.0, 0.7, 0.5, 0.3)
_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|pad|>")
_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = [
    "the star has one draft and many targets; the draft proposes and the targets verify.",
    "user assistant system: a short answer to the question, please, and then another one.",
]


def make_tiny_model(folder: Path, seed: int = 0, corpus: Sequence[str] = ()) -> Path:
    """Write config, float32 weights and tokenizer into ``folder``; returns it. The tokenizer also
    knows what is frequent in ``corpus``."""
    tokenizer = make_tokenizer(corpus)
    model = make_llama(seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_llama(seed: int = 0) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    _fill(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def _fill(model: LlamaForCausalLM, generator: torch.Generator) -> None:
    """Unit-variance activations throughout; each layer's part of the sum is its gain."""
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            continue
        weight.normal_(std=weight.shape[1] ** -0.5, generator=generator)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight.mul_(1.5)
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.mul_(2 * _LAYER_GAINS[int(name.split(".")[2])])
    model.model.embed_tokens.weight.normal_(std=1.0, generator=generator)
    model.lm_head.weight.normal_(std=_HEAD_STD, generator=generator)


def make_tokenizer(corpus: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Byte-level BPE of ``VOCAB`` ids: an emoji takes several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_CORPUS, *corpus], trainer)
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>"
    )
    wrapped.chat_template = _TEMPLATE
    return wrapped
