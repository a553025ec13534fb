"""What tokens stand for, put together, is the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.decoders import ByteFallback, Fuse, Sequence, Strip
from tokenizers.decoders import Replace as Replaced
from tokenizers.models import BPE

from starsd.engine.spelling import Spelling
from starsd.engine.tokenizer import HfTokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> HfTokenizer:
    return HfTokenizer(tiny_model)


@given(text=st.text(max_size=40))
def test_bytes_of_byte_level_tokens(tokenizer: HfTokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, tokens)) == text.encode()


def test_every_byte_level_token_of_the_vocabulary_stands_for_something(
    tokenizer: HfTokenizer,
) -> None:
    assert all(tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size))


def test_a_special_token_stands_for_its_name(tokenizer: HfTokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.eos_ids[0]) == b"<|im_end|>"


def test_padding_of_the_head_stands_for_nothing(tokenizer: HfTokenizer) -> None:
    assert tokenizer.token_bytes(100_000) == b""


def test_pieces_with_byte_fallback() -> None:
    vocabulary = {"<unk>": 0, "▁a": 1, "é": 2, "<0xF0>": 3, "<0x0A>": 4, "▁": 5}
    backend = Tokenizer(BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    steps = [Replaced("▁", " "), ByteFallback(), Fuse(), Strip(" ", 1, 0)]
    backend.decoder = Sequence(steps)
    spelling = Spelling(backend)
    assert [spelling.of(token) for token in range(1, 6)] == [
        b" a",
        "é".encode(),
        b"\xf0",
        b"\n",
        b" ",
    ]
