"""Masks are a function of the answer's tokens, however they were walked, tried and taken back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from starsd.engine.vocabulary import grammar_tokenizer
from starsd.errors import GrammarError
from starsd.grammar import compiler as compiling
from starsd.grammar.compiler import GrammarCompiler
from starsd.grammar.definition import define
from starsd.grammar.state import GrammarState
from starsd.protocol.grammar import GrammarKind
from tests.scripted import EOS, VOCAB, byte_tokens
from tests.tiny import VOCAB as TINY_VOCAB
from tests.tiny import make_tokenizer
from tests.unit.grammar.support import begin, grammar

JSON, REGEX, CHOICE, _ = GrammarKind
TINY_EOS = 1
SCHEMA = {
    "type": "object",
    "properties": {"the star": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["the star", "n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LLTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return grammar_tokenizer(folder, TINY_VOCAB)


def allowed(state: GrammarState, walked: list[int] | None = None) -> list[int]:
    return [int(token) for token in state.mask(walked or []).nonzero()[0]]


def test_a_mask_is_as_wide_as_the_model_and_the_padding_is_never_allowed() -> None:
    compiler = GrammarCompiler(byte_tokens(), 300)
    state = compiler.start(define(grammar(REGEX, "[ab]+")), [EOS])
    assert state.mask([]).shape == (300,)
    assert allowed(state) == [ord("a"), ord("b")]


def test_a_model_narrower_than_its_tokenizer() -> None:
    state = GrammarCompiler(byte_tokens(), 100).start(define(grammar(REGEX, "[ab]+")), [EOS])
    assert allowed(state) == [ord("a"), ord("b")]


def test_the_end_is_allowed_where_the_grammar_is_satisfied() -> None:
    state = begin(REGEX, "ab?")
    assert EOS not in allowed(state)
    state.advance([ord("a")])
    assert allowed(state) == [ord("b"), EOS]
    state.advance([ord("b")])
    assert allowed(state) == [EOS]


def test_other_ends_than_the_tokenizers_own() -> None:
    """A chat model's end of turn; what the tokenizer calls the end would not end the answer."""
    compiler = GrammarCompiler(byte_tokens(), VOCAB)
    state = compiler.start(define(grammar(REGEX, "a")), [258, 259])
    state.advance([ord("a")])
    assert allowed(state) == [258, 259]


def test_a_walk_is_taken_back_to_what_was_kept() -> None:
    state = begin(REGEX, "abcd")
    assert allowed(state, []) == [ord("a")]
    assert allowed(state, [*b"a"]) == [ord("b")]
    assert allowed(state, [*b"ab"]) == [ord("c")]
    state.advance([*b"a"])
    assert allowed(state) == [ord("b")]


def test_after_an_end_everything_goes_and_nothing_is_legal() -> None:
    """Rows below a proposed end are read, and their tokens thrown away."""
    state = begin(REGEX, "a")
    assert state.legal([ord("a"), EOS, ord("a")]) == 2
    state.mask([])
    state.mask([ord("a")])
    assert state.mask([ord("a"), EOS]).all()
    state.advance([ord("a"), EOS])


@pytest.mark.parametrize(
    ("path", "count"),
    [([], 0), ([*b"ab"], 2), ([*b"abx"], 2), ([*b"x"], 0), ([EOS], 0), ([*b"a", EOS], 1)],
)
def test_legal_tokens_of_a_path(path: list[int], count: int) -> None:
    state = begin(REGEX, "ab(c|d)")
    assert state.legal(path) == count
    assert allowed(state) == [ord("a")]


def test_forced_tokens_are_spelled_as_the_tokenizer_does(tiny: LLTokenizer) -> None:
    state = begin(JSON, SCHEMA, tiny, TINY_EOS)
    state.advance(tiny.tokenize_str('{"'))
    forced = state.forced()
    assert tiny.decode_str(forced) == 'the star"'
    assert len(forced) < len("the star")
    assert forced == tiny.tokenize_str('the star"')


def test_an_illegal_token_is_an_error() -> None:
    state = begin(REGEX, "ab")
    with pytest.raises(GrammarError, match="cannot go on"):
        state.advance([ord("x")])


PATHS = st.lists(st.lists(st.integers(0, TINY_VOCAB - 1), max_size=6), max_size=4)


@settings(max_examples=40)
@given(data=st.data(), noise=st.lists(PATHS, min_size=30, max_size=30))
def test_masks_do_not_depend_on_proposals(
    tiny: LLTokenizer, data: st.DataObject, noise: list[Any]
) -> None:
    """One state is asked about proposals, walks ahead and comes back; the other only advances."""
    vexed, calm = (begin(JSON, SCHEMA, tiny, TINY_EOS) for _ in range(2))
    for paths in noise:
        for path in paths:
            vexed.legal(path)
        forced = vexed.forced()
        assert vexed.legal(forced) == len(forced)
        mask = calm.mask([])
        assert np.array_equal(vexed.mask([]), mask)
        token = data.draw(st.sampled_from(mask.nonzero()[0].tolist()))
        if token == TINY_EOS:
            return
        vexed.mask([token])
        if data.draw(st.booleans()):
            vexed.advance([])  # a walk that nothing came of
        vexed.advance([token])
        calm.advance([token])


def test_a_proposal_that_breaks_the_matcher_does_not_break_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = begin(REGEX, "abc")
    state.advance([ord("a")])
    broken = begin(REGEX, "x")._matcher
    broken.consume_token(ord("y"))
    assert broken.is_error()
    monkeypatch.setattr(state, "_matcher", broken)
    assert state.forced() == []
    assert allowed(state) == [ord("b")]


def test_one_text_is_compiled_once_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_KEPT", 2)
    compiler = GrammarCompiler(byte_tokens(), VOCAB)
    compiled: list[str] = []
    real = compiler._compile

    def counted(text: str) -> LLMatcher:
        compiled.append(text)
        return real(text)

    monkeypatch.setattr(compiler, "_compile", counted)
    for word in ["a", "b", "a", "c", "a", "b"]:
        compiler.start(define(grammar(REGEX, word)), [EOS]).advance([ord(word)])
    assert [text.count("/a/") for text in compiled] == [1, 0, 0, 0]  # b again, but not a
